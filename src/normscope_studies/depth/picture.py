"""Many curves over depth in one picture, with a name at each end."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from normscope.report.svg import HUES, house_style, to_svg

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
