"""One placement, for a terminal of 100 columns."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..report.wiring.text import wiring_text
from . import words
from .details import Details
from .rows import Row, Size, StackKind


def details_view(found: Details, size: Size, drawn: StackKind) -> RenderableType:
    """One placement; `drawn`: the stack whose wiring is shown."""
    row = found.row
    variant = f", a variant of {row.variant_of}" if row.variant_of else ""
    return Group(
        Text.assemble((f"{row.title} ({row.name}), {row.year}", "bold"), variant),
        Text(row.citation),
        Text(f"Defined for {words.defined(row, size)}. Numbers are for: {size}.", style="dim"),
        _part("Formula", Text("\n".join(words.formula(row)))),
        _part("In words", Text("\n\n".join(" ".join(p.split()) for p in found.description.split("\n\n")))),
        _part(f"Wiring of the {drawn}, from top to bottom", Text(wiring_text(found.wiring[drawn]), no_wrap=True)),
        _part("Initial weights: standard deviations", Group(_scheme(found), _weights(found))),
        _part("Parameters of the formula", Text("\n".join(words.parameter_lines(found)) or "none")),
        _part("Further", Text("\n".join(words.facts(found)))),
        _part("Counts", _counts(row)),
        Text(f"\n{words.EXTRA} {words.COUNTED}", style="dim"),
    )


def _part(heading: str, content: RenderableType) -> RenderableType:
    return Group("", Text(heading, style="bold"), Padding(content, (0, 0, 0, 2)))


def _scheme(found: Details) -> Text:
    return Text(f"{found.scheme}: {found.scheme_source}", style="dim")


def _weights(found: Details) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("weight")
    for heading in words.weight_columns(found):
        table.add_column(heading.replace(", ", ",\n"), justify="left")
    for weight, cells in words.weight_rows(found):
        table.add_row(weight, *cells)
    return table


def _counts(row: Row) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("stack", "final norm", "norms per block", "extra parameters", "cost of the last block"):
        table.add_column(heading)
    for (kind, f), cost in zip(row.stacks.items(), words.costs(row).values(), strict=True):
        table.add_row(kind, words.final_norm(f), words.span(f.norms), words.span(f.extra_parameters), cost)
    return table
