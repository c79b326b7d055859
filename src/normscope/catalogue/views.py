"""Placements on a terminal of 100 columns and in a notebook's cell: the list, and one with all its
details.
"""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..report import notebook
from . import words
from .details import Details
from .rows import PlacementRow, Size, StackName
from .wiring_svg import diagram
from .wiring_text import wiring_text


def list_table(rows: Sequence[PlacementRow], size: Size) -> RenderableType:
    """All placements; a variant stands below what it is a variant of."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    known = {row.name for row in rows}
    names = [f"└ {row.name}" if row.variant_of in known else row.name for row in rows]
    # A name is what users type: it is never cut.
    table.add_column("\n\nplacement", width=max(map(len, names)))
    table.add_column("\n\nformula and source", ratio=1)
    table.add_column("\n\nstack")
    for heading in (
        "\nfinal\nnorm",
        "norms\nper\nblock",
        "extra\nparam.\n/ block",
        "\n\ncost",
        "\n× Pre-\nLN",
    ):
        table.add_column(heading, justify="right")
    for row, named in zip(rows, names, strict=True):
        name = Text(named, style="bold")
        below = Text(
            "\n".join([str(row.year), *(row.models if len(row.models) < 3 else ())]), style="dim"
        )
        source = Text.assemble(
            "\n".join(words.formula(row, brief=True)), "\n", (row.citation, "dim")
        )
        counts = (
            "\n".join(cells).replace(" to ", "–") for cells in words.counts_by_stack(row).values()
        )
        table.add_row(
            Text.assemble(name, "\n", below), source, "\n".join(row.stacks) or "–", *counts
        )
        table.add_row()
    more = (
        "`normscope placements show NAME` prints the whole formula, draws the wiring and lists "
        "initial weights."
    )
    return Group(
        table,
        Text(f"For {size}. {words.EXTRA} {words.COUNTED}", style="dim"),
        Text(more, style="dim"),
    )


def details_view(found: Details, size: Size, drawn: StackName) -> RenderableType:
    """One placement; `drawn`: the stack whose wiring is shown."""
    row = found.row
    variant = f", a variant of {row.variant_of}" if row.variant_of else ""
    return Group(
        Text.assemble((f"{row.title} ({row.name}), {row.year}", "bold"), variant),
        Text(row.citation),
        Text(f"Defined for {words.defined(row, size)}. Numbers are for: {size}.", style="dim"),
        _part("Formula", Text("\n".join(words.formula(row)))),
        _part(
            "In words",
            Text("\n\n".join(" ".join(p.split()) for p in found.description.split("\n\n"))),
        ),
        _part(
            f"Wiring of the {drawn}, from top to bottom",
            Text(wiring_text(found.wiring[drawn]), no_wrap=True),
        ),
        _part(
            "Initial weights: standard deviations",
            Group(Text(f"{found.scheme}: {found.scheme_source}", style="dim"), _weights(found)),
        ),
        _part("Parameters of the formula", Text("\n".join(words.parameter_lines(found)) or "none")),
        _part("Further", Text("\n".join(words.facts(found)))),
        _part("Counts", _counts(row)),
        Text(f"\n{words.EXTRA} {words.COUNTED}", style="dim"),
    )


def _part(heading: str, content: RenderableType) -> RenderableType:
    return Group("", Text(heading, style="bold"), Padding(content, (0, 0, 0, 2)))


def _weights(found: Details) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("weight")
    for heading in words.weight_columns(found):
        table.add_column(heading.replace(", ", ",\n"), justify="left")
    for weight, cells in words.weight_rows(found):
        table.add_row(weight, *cells)
    return table


def _counts(row: PlacementRow) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in (
        "stack",
        "final norm",
        "norms per block",
        "extra parameters",
        "cost of the last block",
    ):
        table.add_column(heading)
    norm, norms, extra, *_ = words.counts_by_stack(row).values()
    for cells in zip(row.stacks, norm, norms, extra, words.costs(row).values(), strict=True):
        table.add_row(*cells)
    return table


def list_html(rows: Sequence[PlacementRow], size: Size) -> str:
    """All of them, a row each."""
    heads = (
        "placement",
        "formula",
        "year",
        "source",
        "final norm",
        "norms per block",
        "cost",
        "× Pre-LN",
    )
    table = []
    for row in rows:
        counts = [words.counts(row)[heading] for heading in heads[4:]]
        table.append(
            (row.name, "; ".join(words.formula(row, brief=True)), row.year, row.citation, *counts)
        )
    said = notebook.paragraph(f"For {size}. {words.COUNTED}")
    return notebook.fragment([notebook.table(heads, table), said])


def details_html(shown: Mapping[str, Details], size: Size) -> str:
    """Each with its formula, wiring, initial weights and counts."""
    return notebook.fragment(piece for found in shown.values() for piece in _pieces(found, size))


def _pieces(found: Details, size: Size) -> Iterator[str]:
    row = found.row
    variant = f", a variant of {row.variant_of}" if row.variant_of else ""
    yield notebook.heading(f"{row.title} ({row.name}), {row.year}{variant}")
    yield notebook.paragraph(
        f"{row.citation}. Defined for {words.defined(row, size)}; numbers are for {size}."
    )
    yield notebook.preformatted("\n".join(words.formula(row)))
    for stack in found.wiring:
        yield notebook.image(
            diagram(found, stack),
            f"Wiring of {row.title}, {stack}: {'; '.join(words.formula(row))}",
        )
    yield notebook.paragraph(" ".join(found.description.split()))
    yield notebook.paragraph(
        f"Initial weights: {found.scheme}, {found.scheme_source}. Standard deviations:"
    )
    weights = [(weight, *cells) for weight, cells in words.weight_rows(found)]
    yield notebook.table(("weight", *words.weight_columns(found)), weights)
    yield from map(notebook.paragraph, words.statements(found))
