"""A stack over depth in letters: a table of its first, middle and last block, with a sparkline a row."""

import math
from collections.abc import Callable, Sequence

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ...report.words import ASCII_BARS, BARS
from ..record import Stack
from .depth import DepthRow, depth_rows, finite, places, positive
from .words import figures

_LEAST_BARS, _MOST_BARS = 6, 16
_LEAST_RATIO = 4.0
"""Least ratio between the ends of a logarithmic sparkline, so that a nearly level curve looks level."""
_BETWEEN = 2
"""Spaces between the columns of a table."""
_Say = Callable[[str], Text]
"""Makes text that the console can print."""


def depth_table(stack: Stack, room: int, say: _Say, console: Console, options: ConsoleOptions) -> Table:
    """The table over depth. Where room is short, sparklines are narrower or left out, then the middle block.

    room: columns for the whole table.
    """
    where = places(stack)
    last = len(where) - 1
    table = _numbers(stack, sorted({0, last // 2, last}), 0, say, options.ascii_only)
    room -= Measurement.get(console, options, table).maximum
    if room < 0:
        return _numbers(stack, sorted({0, last}), 0, say, options.ascii_only)
    bars = min(len(where), _MOST_BARS, room - _BETWEEN)
    bars = bars if bars >= min(len(where), _LEAST_BARS) else 0
    return _numbers(stack, sorted({0, last // 2, last}), bars, say, options.ascii_only)


def _numbers(stack: Stack, shown: Sequence[int], bars: int, say: _Say, ascii_only: bool) -> Table:
    where, theory = places(stack), stack.predicted is not None
    table = Table(box=None, padding=(0, _BETWEEN, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    if bars:
        table.add_column("", no_wrap=True)
    for at in shown:
        table.add_column(say(where[at].label), justify="right", no_wrap=True)
        if theory:
            table.add_column(say("theory"), justify="right", no_wrap=True, style="dim")
    for row in depth_rows(stack):
        if all(value is None for value in row.measured):
            continue
        cells = [say(row.name)]
        if bars:
            cells.append(Text(sparkline(row, ASCII_BARS if ascii_only else BARS, bars)))
        for at in shown:
            cells.append(say(figures(row.measured[at])))
            if theory:
                cells.append(say("" if row.predicted is None else figures(row.predicted[at])))
        table.add_row(*cells)
    return table


def sparkline(row: DepthRow, bars: str, count: int) -> str:
    """A curve in `count` letters, which show the first and the last place. Ratios and cosines go from 0 to 1."""
    last = len(row.measured) - 1
    kept = [round(i * last / max(1, count - 1)) for i in range(count)]
    values = [(positive if row.logarithmic else finite)(row.measured[i]) for i in kept]
    return "".join(" " if height is None else bars[height] for height in _heights(values, row.logarithmic, len(bars)))


def _heights(values: Sequence[float | None], logarithmic: bool, levels: int) -> list[int | None]:
    known = [value for value in values if value is not None]
    if not logarithmic:
        return [None if v is None else min(levels - 1, int(max(0.0, v) * levels)) for v in values]
    if not known:
        return [None for _ in values]
    low, high = math.log(min(known)), math.log(max(known))
    spare = max(0.0, math.log(_LEAST_RATIO) - (high - low))
    below, span = spare * (levels // 2 - 1) / (levels - 1), high - low + spare  # a level line lies on a level
    return [None if v is None else round((math.log(v) - low + below) / span * (levels - 1)) for v in values]
