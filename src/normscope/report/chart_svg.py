"""Panels of curves: what was measured, with its spread, over what was predicted and what is claimed."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .chart import Panel, Series
from .lines import log_scale, short
from .svg import HUES, INK, house_style, to_svg

_LOOKS = {
    "measured": {"ls": "-", "marker": "o", "ms": 4.5, "lw": 1.1},
    "predicted": {"ls": (0, (4, 2)), "marker": "", "lw": 2.2},  # seen on either side of a measured line that it meets
    "points": {"ls": "", "marker": "o", "ms": 5.5, "alpha": 0.8},  # measurements without an order
    "claimed": {"ls": (0, (1.2, 1.8)), "marker": "", "lw": 1.7},
}
_FURTHER_DASHES = ((0, (1.5, 1.3)), (0, (7, 1.5, 1.5, 1.5)), (0, (9, 2)))
"""Of curves where there are more of them than hues: one for each further round of the hues."""
_PANEL_WIDTH_INCHES, _PANEL_HEIGHT_INCHES, _LEGEND_ROW_INCHES = 4.6, 3.2, 0.24
_MOST_MARKERS = 17
_LETTER_INCHES, _LEGEND_HANDLE_INCHES = 0.09, 0.85
"""Of the legend's text, a little more than the mean of its font; and of a line before it, with the gaps."""


_LABEL_CHARACTERS = 40
"""With two blanks each, that stand beside each other below a panel."""


def panels_svg(panels: Sequence[Panel], *, title: str, columns: int = 2) -> str:
    """As `panels_figure`, as SVG text that is described in words."""
    figure = panels_figure(panels, columns=columns)
    with house_style():
        return to_svg(figure, title=title, desc=". ".join(_panel_in_words(panel) for panel in panels))


@house_style()
def panels_figure(panels: Sequence[Panel], *, columns: int = 2) -> Figure:
    """All panels in rows of `columns`, one legend below: a label that several panels share stands in it once."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    labels = list(dict.fromkeys(series.label for panel in panels for series in panel.series))
    longest = max(map(len, labels), default=0) * _LETTER_INCHES + _LEGEND_HANDLE_INCHES
    legend_columns = max(1, min(4, int(_PANEL_WIDTH_INCHES * columns / longest)))
    height = _PANEL_HEIGHT_INCHES * rows + _LEGEND_ROW_INCHES * (-(-len(labels) // legend_columns) + 1)
    figure = Figure(figsize=(_PANEL_WIDTH_INCHES * columns, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    handles: dict[str, Line2D] = {}
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw(axes, panel, handles)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    legend = figure.legend(
        [handles[label] for label in labels], labels, loc="outside lower center", ncols=legend_columns
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a label may hold a dollar sign
    return figure


def _draw(axes: Axes, panel: Panel, handles: dict[str, Line2D]) -> None:
    axes.set_title(panel.title, fontsize=12, loc="left", parse_math=False)
    axes.set_xlabel(panel.xlabel, parse_math=False)
    axes.set_ylabel(panel.ylabel, parse_math=False)
    for series in panel.series:
        color = INK if series.hue < 0 else HUES[series.hue % len(HUES)]
        y = [float("nan") if value is None else value for value in series.y]
        every = 1 if series.kind == "points" else max(1, -(-len(y) // _MOST_MARKERS))
        (line,) = axes.plot(series.x, y, color=color, markevery=every, **_LOOKS[series.kind])  # type: ignore[arg-type]
        if series.kind in ("predicted", "measured") and series.hue >= len(HUES):
            line.set_linestyle(_FURTHER_DASHES[(series.hue // len(HUES) - 1) % len(_FURTHER_DASHES)])
        handles.setdefault(series.label, line)
        if series.low:
            low, high = ([float("nan") if v is None else v for v in edge] for edge in (series.low, series.high))
            axes.fill_between(series.x, low, high, color=color, alpha=0.18, lw=0)
    if panel.y_range is not None:
        axes.set_ylim(panel.y_range)
    if panel.log_y:
        log_scale(axes)
    elif panel.from_zero and panel.y_range is None:
        axes.set_ylim(bottom=0)
    if panel.ticks:
        axes.set_xticks(range(len(panel.ticks)), labels=panel.ticks)
    elif panel.log_x:
        axes.set_xscale("log", base=2)
        places = sorted({at for series in panel.series for at in series.x})
        axes.set_xticks(_told_apart(places))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.minorticks_off()
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def _told_apart(places: Sequence[float]) -> Sequence[float]:
    """All of them, or every second, third, …, so that their labels stand beside each other."""
    for every in range(1, len(places) + 1):
        if sum(len(f"{place:g}") + 2 for place in places[::every]) <= _LABEL_CHARACTERS:
            return places[::every]
    return places


def _panel_in_words(panel: Panel) -> str:
    """The panel in words: where each of its curves begins and ends."""

    def ends(series: Series) -> str:
        known = [value for value in series.y if value is not None]
        return f"{series.label} {short(known[0])} to {short(known[-1])}" if known else f"{series.label} none"

    return f"{panel.title}: " + "; ".join(ends(series) for series in panel.series)
