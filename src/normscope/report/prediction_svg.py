"""Predicted curves over depth: stream, gradient and the change by an update, one row a stack, one line a placement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from .lines import log_scale, short
from .svg import HUES, house_style, to_svg

_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.3)), (0, (7, 1.5, 1.5, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (9, 2)))
_PANEL_WIDTH_INCHES, _PANEL_HEIGHT_INCHES, _LEGEND_ROW_INCHES = 4.4, 2.9, 0.22


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedLine:
    """What was predicted for one stack under one placement."""

    label: str
    stack: str
    streams: Mapping[str, Sequence[float]]
    """Every residual stream by its name in the formula, by completed blocks, from 0 on."""
    gradient: Sequence[float]
    """By block, from 1 on."""
    change: Sequence[float] = ()
    """By completed blocks, from 0 on; empty where no update was asked for."""


def prediction_svg(lines: Sequence[PredictedLine], *, gradient_of: str, title: str, change_by: str = "") -> str:
    """As `prediction_figure`, as SVG text that is described in words."""
    figure = prediction_figure(lines, gradient_of=gradient_of, change_by=change_by)
    with house_style():
        return to_svg(figure, title=title, desc=". ".join(_told(line) for line in lines))


@house_style()
def prediction_figure(lines: Sequence[PredictedLine], *, gradient_of: str, change_by: str = "") -> Figure:
    """Draw streams beside gradients, and the stream's change where there is one. What is 0 or not finite is left out.

    gradient_of: the matrix whose gradient is drawn, for the axis. change_by: the update, in words.
    """
    labels = list(dict.fromkeys(line.label for line in lines))
    stacks = list(dict.fromkeys(line.stack for line in lines))
    entries = len({(line.label, stream) for line in lines for stream in line.streams})
    columns = 4 if entries > 6 else min(3, entries)
    height = _PANEL_HEIGHT_INCHES * len(stacks) + _LEGEND_ROW_INCHES * (-(-entries // max(1, columns)) + 1)
    panels = 3 if change_by else 2
    figure = Figure(figsize=(panels * _PANEL_WIDTH_INCHES, height), layout="constrained")
    grid = figure.subplots(len(stacks), panels, squeeze=False)
    handles: dict[str, Line2D] = {}
    for row, stack in zip(grid, stacks, strict=True):
        of_stack = f" ({stack})" if len(stacks) > 1 else ""
        row[0].set(xlabel=f"completed blocks{of_stack}", ylabel="E‖x‖² / d")
        row[1].set(xlabel=f"block{of_stack}", ylabel=f"gradient norm\nof {gradient_of}")
        if change_by:
            row[2].set(xlabel=f"completed blocks{of_stack}", ylabel="change E‖δx‖² / d")
            row[2].set_title(f"by one update: {change_by}", fontsize="medium")
        for line in (line for line in lines if line.stack == stack):
            place = labels.index(line.label)
            look = {"color": HUES[place % len(HUES)], "ls": _DASHES[place // len(HUES) % len(_DASHES)], "lw": 1.7}
            for number, (name, stream) in enumerate(line.streams.items()):
                # Streams of one placement share their look, but for the width of the line; a legend entry each.
                of = f"{line.label}: {name}" if len(line.streams) > 1 else line.label
                handles[of] = _plot(row[0], range(len(stream)), stream, look | {"lw": 1.7 if number == 0 else 0.8})
            _plot(row[1], range(1, len(line.gradient) + 1), line.gradient, look)
            if change_by:
                _plot(row[2], range(len(line.change)), line.change, look)
        for axes in row:
            log_scale(axes)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    legend = figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a label may hold a dollar sign
    return figure


def _plot(axes: Axes, x: Sequence[int], values: Sequence[float], look: dict[str, Any]) -> Line2D:
    points = [(at, value) for at, value in zip(x, values, strict=True) if 0 < value < float("inf")]
    (line,) = axes.plot([at for at, _ in points], [value for _, value in points], **look)
    return line


def _told(line: PredictedLine) -> str:
    def ends(values: Sequence[float]) -> str:
        return f"{short(values[0])} to {short(values[-1])}" if values else "none"

    several = len(line.streams) > 1
    streams = [f"stream {name + ' ' if several else ''}{ends(values)}" for name, values in line.streams.items()]
    # An embedding does not move.
    change = f", change {ends(line.change[1:])}" if line.change else ""
    return f"{line.label}, {line.stack}: {', '.join(streams)}, gradient {ends(line.gradient)}{change}"
