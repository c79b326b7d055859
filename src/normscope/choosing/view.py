"""A choice for a terminal of 100 columns."""

from collections.abc import Iterator

from rich import table as rich
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from .choice import Choice
from .parts import Part, Table, parts

_WRAPPED = ("remark", "this model is", "optimiser")
"""Columns of words; numbers with their intervals are read as one."""


def choice_view(choice: Choice) -> RenderableType:
    """All parts below the case."""
    title = Text(f"Placement, learning rate and warm-up for: {choice.case}", style="bold")
    return Group(title, *(_part(part) for part in parts(choice)))


def _part(part: Part) -> RenderableType:
    return Group("", Text(part.heading, style="bold"), Padding(Group(*_content(part)), (0, 0, 0, 2)))


def _content(part: Part) -> Iterator[RenderableType]:
    for line in part.before:
        yield Text(line)
    for table in part.tables:
        if table.title:
            yield Text(f"\n{table.title}:")
        yield _table(table)
    for line in part.after:
        yield Text(line)


def _table(table: Table) -> rich.Table:
    drawn = rich.Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in table.columns:
        drawn.add_column(heading, no_wrap=heading not in _WRAPPED, overflow="fold")
    for row in table.rows:
        drawn.add_row(*row)
    return drawn
