"""The table of all placements, for a terminal of 100 columns."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from . import words
from .rows import Row, Size


def list_table(rows: Sequence[Row], size: Size) -> RenderableType:
    """All placements; a variant stands below what it is a variant of."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    known = {row.name for row in rows}
    names = [f"└ {row.name}" if row.variant_of in known else row.name for row in rows]
    # A name is what users type: it is never cut.
    table.add_column("\n\nplacement", width=max(map(len, names)))
    table.add_column("\n\nformula and source", ratio=1)
    for heading in (
        "\n\nstack",
        "\nfinal\nnorm",
        "norms\nper\nblock",
        "extra\nparam.\n/ block",
        "\n\ncost",
        "\n× Pre-\nLN",
    ):
        table.add_column(heading, justify="left" if "stack" in heading else "right")
    for row, named in zip(rows, names, strict=True):
        name = Text(named, style="bold")
        below = Text("\n".join([str(row.year), *(row.models if len(row.models) < 3 else ())]), style="dim")
        source = Text.assemble("\n".join(words.brief_formula(row)), "\n", (row.citation, "dim"))
        facts = row.stacks.values()
        table.add_row(
            Text.assemble(name, "\n", below),
            source,
            "\n".join(row.stacks) or "–",
            "\n".join(words.final_norm(f) for f in facts),
            "\n".join(words.span(f.norms).replace(" to ", "–") for f in facts),
            "\n".join(words.span(f.extra_parameters).replace(" to ", "–") for f in facts),
            "\n".join(words.number(f.last_block_cost.total) for f in facts),
            "\n".join(f"{f.last_block_cost_ratio:.2f}" for f in facts),
        )
        table.add_row()
    more = "`normscope placements show NAME` prints the whole formula, draws the wiring and lists initial weights."
    return Group(table, Text(f"For {size}. {words.EXTRA} {words.COUNTED}", style="dim"), Text(more, style="dim"))
