"""Panels of curves: what was measured, with its spread, over what was predicted and what is
claimed.

A chart that readers of a page explore is drawn as the panels that `chart_panels` makes of it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from .chart import Panel, Series
from .chart_panels import chart_panels
from .svg import HUES, INK, house_style, to_svg
from .words import significant

_LOOKS: Mapping[str, Mapping[str, Any]] = {
    "measured": {"ms": 4.5, "lw": 1.1},
    "predicted": {
        "ls": (0, (4, 2)),
        "marker": "",
        "lw": 2.2,
    },  # seen on either side of a measured line that it meets
    "points": {"ls": "", "marker": "o", "ms": 5.5, "alpha": 0.8},  # measurements without an order
    "claimed": {"ls": (0, (1.2, 1.8)), "marker": "", "lw": 1.7},
}
VARIANTS: Sequence[tuple[Any, str]] = (
    ("-", "o"),
    ((0, (4, 1.6)), "s"),
    ((0, (1.2, 1.4)), "^"),
    ((0, (5, 1.5, 1.2, 1.5)), "D"),
    ((0, (9, 2)), "v"),
)
"""Dashes and markers of measured curves: by their variant, and one further for each round of the
hues.
"""
_FURTHER_DASHES = ((0, (1.5, 1.3)), (0, (7, 1.5, 1.5, 1.5)), (0, (9, 2)))
"""The dashes of predictions, where there are more of them than hues: one for each further round of
the hues.
"""
_PANEL_WIDTH_INCHES = 4.6
_PANEL_HEIGHT_INCHES = 3.2
_LEGEND_ROW_INCHES = 0.24
_MOST_MARKERS = 17
_LETTER_INCHES, _LEGEND_HANDLE_INCHES = 0.09, 0.85
"""The width in inches of a letter of the legend, a little more than the mean of its font; and of a
line before it, with the gaps.
"""


_LABEL_CHARACTERS = 40
"""The letters of labels, with two blanks each, that have room beside each other below a panel."""


def panels_svg(panels: Sequence[Panel], *, title: str, columns: int = 2) -> str:
    """Returns the figure of `panels_figure` as SVG text, with a description in words."""
    figure = panels_figure(panels, columns=columns)
    with house_style():
        return to_svg(
            figure, title=title, desc=". ".join(_panel_in_words(panel) for panel in panels)
        )


@house_style()
def panels_figure(panels: Sequence[Panel], *, columns: int = 2) -> Figure:
    """Returns all panels in rows of `columns`, one legend below: a label that several panels share
    stands in it once.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    crossed = [panel.crossed for panel in panels for series in panel.series if series.crosses]
    labels = list(
        dict.fromkeys([*(series.label for panel in panels for series in panel.series), *crossed])
    )
    longest = max(map(len, labels), default=0) * _LETTER_INCHES + _LEGEND_HANDLE_INCHES
    legend_columns = max(1, min(4, int(_PANEL_WIDTH_INCHES * columns / longest)))
    height = _PANEL_HEIGHT_INCHES * rows + _LEGEND_ROW_INCHES * (
        -(-len(labels) // legend_columns) + 1
    )
    figure = Figure(figsize=(_PANEL_WIDTH_INCHES * columns, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    handles: dict[str, Line2D] = {}
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw(axes, panel, handles)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    if labels:
        shown = [handles[label] for label in labels]
        legend = figure.legend(shown, labels, loc="outside lower center", ncols=legend_columns)
        for text in legend.get_texts():
            text.set_parse_math(False)  # a label may hold a dollar sign
    return figure


_CROSS: Mapping[str, Any] = {"ls": "", "marker": "x", "ms": 9, "mew": 2.5}


def chart_svg(panel: Panel) -> str:
    """Returns the curves over many updates and seeds that are shown, as SVG text that is described
    in words.
    """
    return panels_svg(panels := chart_panels(panel), title=panel.title, columns=min(3, len(panels)))


def _draw(axes: Axes, panel: Panel, handles: dict[str, Line2D]) -> None:
    axes.set_title(panel.title, fontsize=12, loc="left", parse_math=False)
    axes.set_xlabel(panel.xlabel, parse_math=False)
    axes.set_ylabel(panel.ylabel, parse_math=False)
    for series in panel.series:
        color = INK if series.hue < 0 else HUES[series.hue % len(HUES)]
        y = [float("nan") if value is None else value for value in series.y]
        every = 1 if series.kind == "points" else max(1, -(-len(y) // _MOST_MARKERS))
        (line,) = axes.plot(series.x, y, color=color, markevery=every, **_LOOKS[series.kind])
        rounds = max(0, series.hue // len(HUES))
        if series.kind == "measured":
            dash, marker = VARIANTS[(series.variant + rounds) % len(VARIANTS)]
            line.set(linestyle=dash, marker=marker)
        elif series.kind == "predicted" and rounds:
            line.set_linestyle(_FURTHER_DASHES[(rounds - 1) % len(_FURTHER_DASHES)])
        handles.setdefault(series.label, line)
        for at, height in series.crosses:
            where = axes.get_xaxis_transform() if height is None else axes.transData
            place = 1.0 if height is None else height
            axes.plot(
                [at], [place], color=color, transform=where, clip_on=False, zorder=4, **_CROSS
            )
        if series.low:
            low = [math.nan if value is None else value for value in series.low]
            high = [math.nan if value is None else value for value in series.high]
            axes.fill_between(series.x, low, high, color=color, alpha=0.18, lw=0)
    if any(series.crosses for series in panel.series):
        handles.setdefault(panel.crossed, Line2D([], [], color=INK, **_CROSS))
    if not any(value is not None for series in panel.series for value in series.y):
        axes.text(0.5, 0.5, "no values yet", ha="center", va="center", transform=axes.transAxes)
    if panel.y_range is not None:
        axes.set_ylim(panel.y_range)
    if panel.log_y:
        _log_scale(axes)
    elif panel.from_zero and panel.y_range is None:
        axes.set_ylim(bottom=0)
    if panel.ticks:
        shown = range(0, len(panel.ticks), _every(panel.ticks))
        for label in axes.set_xticks(shown, labels=[panel.ticks[at] for at in shown]):
            label.label1.set_parse_math(False)
    elif panel.log_x:
        axes.set_xscale("log", base=2)
        places = sorted({at for series in panel.series for at in series.x})
        axes.set_xticks(places[:: _every([f"{place:g}" for place in places])])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.minorticks_off()
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def _every(labels: Sequence[str]) -> int:
    """1 for all of them, or 2, 3, … for every second or third, so that they stand beside each
    other.
    """
    for every in range(1, len(labels) + 1):
        letters = sum(len(label) + 2 for label in labels[::every])
        if letters <= _LABEL_CHARACTERS:
            return every
    return len(labels) or 1


def _panel_in_words(panel: Panel) -> str:
    """Returns the panel in words: where each of its curves begins and ends."""

    def ends(series: Series) -> str:
        known = [value for value in series.y if value is not None]
        ends = f"{significant(known[0])} to {significant(known[-1])}" if known else "none"
        return f"{series.label} {ends}" + (f", {panel.crossed}" if series.crosses else "")

    return f"{panel.title}: " + "; ".join(ends(series) for series in panel.series)


_DECADES_OF_NUMBERS = 3
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _log_scale(axes: Axes) -> None:
    """Plain numbers at 1, 2, 5 within three decades, powers of ten beyond."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if np.log10(high) - np.log10(low) < _DECADES_OF_NUMBERS:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power_of_ten(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _power_of_ten(value: float) -> str:
    """ "10⁻⁵" in letters of any font: a formula would be drawn letter by letter."""
    return "10" + str(round(np.log10(value))).translate(_RAISED) if value > 0 else ""
