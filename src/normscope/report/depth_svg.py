"""Curves over depth as pictures: predictions by stack, and many curves in one picture with a name at each end."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from .lines import log_scale, short
from .svg import HUES, house_style, to_svg

_PREDICTED_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.3)), (0, (7, 1.5, 1.5, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (9, 2)))
_PREDICTED_WIDTH_INCHES, _PREDICTED_HEIGHT_INCHES, _LEGEND_ROW_INCHES = 4.4, 2.9, 0.22


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
        return to_svg(figure, title=title, desc=". ".join(_prediction_words(line) for line in lines))


@house_style()
def prediction_figure(lines: Sequence[PredictedLine], *, gradient_of: str, change_by: str = "") -> Figure:
    """Draw streams beside gradients, and the stream's change where there is one. What is 0 or not finite is left out.

    gradient_of: the matrix whose gradient is drawn, for the axis. change_by: the update, in words.
    """
    labels = list(dict.fromkeys(line.label for line in lines))
    stacks = list(dict.fromkeys(line.stack for line in lines))
    entries = len({(line.label, stream) for line in lines for stream in line.streams})
    columns = 4 if entries > 6 else min(3, entries)
    height = _PREDICTED_HEIGHT_INCHES * len(stacks) + _LEGEND_ROW_INCHES * (-(-entries // max(1, columns)) + 1)
    panels = 3 if change_by else 2
    figure = Figure(figsize=(panels * _PREDICTED_WIDTH_INCHES, height), layout="constrained")
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
            look = {
                "color": HUES[place % len(HUES)],
                "ls": _PREDICTED_DASHES[place // len(HUES) % len(_PREDICTED_DASHES)],
                "lw": 1.7,
            }
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


def _prediction_words(line: PredictedLine) -> str:
    def ends(values: Sequence[float]) -> str:
        return f"{short(values[0])} to {short(values[-1])}" if values else "none"

    several = len(line.streams) > 1
    streams = [f"stream {name + ' ' if several else ''}{ends(values)}" for name, values in line.streams.items()]
    # An embedding does not move.
    change = f", change {ends(line.change[1:])}" if line.change else ""
    return f"{line.label}, {line.stack}: {', '.join(streams)}, gradient {ends(line.gradient)}{change}"


_COINCIDE = 0.025
"""Largest relative distance between curves that share a line."""
_LABEL_CHARACTERS, _LABEL_POINTS = 46, 9.5
_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.3)), (0, (7, 1.5, 1.5, 1.5)))
_ROW_INCHES = _LABEL_POINTS * 1.3 / 72
_WIDTH_INCHES, _HEIGHT_INCHES = 9.6, 6.6
_ABOVE = 10.0
"""How many times the largest finite curve one that stops being finite is drawn up to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthLine:
    """A curve; None where its value is not finite. Lines of one `group` have one hue; `note` says what they do."""

    label: str
    group: str
    note: str
    depths: Sequence[int]
    values: Sequence[float | None]

    @property
    def points(self) -> list[tuple[int, float]]:
        """What a log-log picture can show of it."""
        pairs = zip(self.depths, self.values, strict=True)
        return [(depth, value) for depth, value in pairs if depth > 0 and value is not None and value > 0]


@house_style()
def depth_svg(lines: Sequence[DepthLine], *, groups: Sequence[str], title: str) -> str:
    """Both axes are logarithmic. groups: all that may occur, so that a hue always means the same.

    It is as high as its labels need. A curve that stops being finite leaves the picture above the others.
    """
    highest = _highest(lines)
    bundles = [
        (group, i, bundle)
        for group in groups
        for i, bundle in enumerate(bundled([line for line in lines if line.group == group and line.points]))
    ]
    labels = [_named(bundle) for *_, bundle in bundles]
    needed = sum(map(_rows, labels)) * _ROW_INCHES
    figure = Figure(figsize=(_WIDTH_INCHES, max(_HEIGHT_INCHES, needed + _ROW_INCHES)))
    axes = figure.add_axes((0.1, 0.085, 0.48, 0.885))
    axes.set(xscale="log", yscale="log", xlabel="depth: completed blocks", ylabel="RMS of the hidden state")
    drawn = []
    for (group, i, bundle), label in zip(bundles, labels, strict=True):
        color = HUES[list(groups).index(group) % len(HUES)]
        shown = [(depth, value) for depth, value in bundle[0].points if value <= highest]
        depths, values = zip(*(shown or bundle[0].points[:1]), strict=True)
        axes.plot(depths, values, color=color, ls=_DASHES[i % len(_DASHES)], lw=1.9)
        drawn.append((values[-1], depths[-1], color, label))
    _scales(axes)
    _name(figure, axes, drawn)
    return to_svg(figure, title=title, desc=_in_words(lines))


def _highest(lines: Sequence[DepthLine]) -> float:
    """The largest value that is drawn: well above all curves that stay finite."""
    finite = [value for line in lines if None not in line.values for _, value in line.points]
    return _ABOVE * max(finite) if finite else math.inf


def bundled(lines: Sequence[DepthLine]) -> list[list[DepthLine]]:
    """Lines that coincide with the first of their bundle at every depth."""
    bundles: list[list[DepthLine]] = []
    for line in lines:
        for bundle in bundles:
            if _coincide(bundle[0], line):
                bundle.append(line)
                break
        else:
            bundles.append([line])
    return bundles


def _coincide(one: DepthLine, other: DepthLine) -> bool:
    if [depth for depth, _ in one.points] != [depth for depth, _ in other.points]:
        return False
    pairs = zip(one.points, other.points, strict=True)
    return all(abs(a / b - 1) <= _COINCIDE for (_, a), (_, b) in pairs)


def _named(bundle: Sequence[DepthLine]) -> str:
    names = " · ".join(line.label for line in bundle)
    text = f"{bundle[0].points[-1][1]:.3g}  {names} ({bundle[0].note})"
    return textwrap.fill(text, _LABEL_CHARACTERS, subsequent_indent="   ", break_on_hyphens=False)


def _rows(label: str) -> float:
    """Of text, and the gap to the next label."""
    return label.count("\n") + 1.35


def _scales(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.margins(x=0, y=0.06)
    axes.autoscale_view()  # labels are placed with these limits, which else were found only when drawing


def _name(figure: Figure, axes: Axes, drawn: Sequence[tuple[float, int, str, str]]) -> None:
    """Labels right of the axes, each with a hair to its line's end, pushed apart where they would overlap."""
    row = _ROW_INCHES / figure.get_figheight()
    ordered = sorted(drawn, key=lambda line: line[0])
    to_figure = axes.transData + figure.transFigure.inverted()
    wanted = [float(to_figure.transform((depth, value))[1]) for value, depth, _, _ in ordered]
    halves = [_rows(text) * row / 2 for *_, text in ordered]
    for (value, depth, color, text), height in zip(ordered, spread(wanted, halves), strict=True):
        axes.annotate(
            text,
            xy=(depth, value),
            xytext=(0.605, height),
            textcoords="figure fraction",
            va="center",
            ha="left",
            fontsize=_LABEL_POINTS,
            linespacing=1.25,
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.9, "shrinkA": 2, "shrinkB": 0, "relpos": (0, 0.5)},
        )


def spread(wanted: Sequence[float], halves: Sequence[float]) -> list[float]:
    """Heights in [0, 1], in order, as near as may be to the wanted ones: labels of these half heights do not overlap.

    Labels that would overlap become one block, which lies where its members on average want it.
    """
    blocks: list[tuple[list[int], float, float]] = []  # members, wanted lower end, height
    for i, (height, half) in enumerate(zip(wanted, halves, strict=True)):
        members, low, size = [i], height - half, 2 * half
        while blocks and blocks[-1][1] + blocks[-1][2] > _inside(low, size):
            below, below_low, below_size = blocks.pop()
            # Its lower end, as each side alone would place it.
            low = (below_low * len(below) + (low - below_size) * len(members)) / (len(below) + len(members))
            members, size = below + members, below_size + size
        blocks.append((members, _inside(low, size), size))
    heights = [0.0] * len(wanted)
    for members, at, _ in blocks:
        for i in members:
            heights[i] = at + halves[i]
            at += 2 * halves[i]
    return heights


def _inside(low: float, size: float) -> float:
    return max(0.0, min(low, 1 - size))


def _in_words(lines: Sequence[DepthLine]) -> str:
    """The picture in words: where each curve ends."""
    return ". ".join(
        f"{line.label}: {line.points[-1][1]:.3g} at depth {line.points[-1][0]}, {line.note}"
        for line in lines
        if line.points
    )
