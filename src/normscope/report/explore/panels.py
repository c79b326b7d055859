"""Panels of curves as charts: those of a study's figures and of the doctor's measurements over depth."""

from collections.abc import Mapping, Sequence

from ..panels_svg import Kind, Panel, Series
from .chart import Arm, Chart, Columns, Explorer, Line, Mark

_MARKS: Mapping[Kind, Mark] = {"measured": "line", "predicted": "dashed", "claimed": "dotted", "points": "points"}
_ROOM = 1.05
"""The upper end of an axis from 0, over the largest value."""


def panels_explorer(figures: Mapping[str, Sequence[Panel]]) -> Explorer:
    """The charts of a page by the names of their figures, in which a label is an arm."""
    arms, charts = list[Arm](), list[Chart]()
    for figure, panels in figures.items():
        place: dict[tuple[str, int], int] = {}
        for panel in panels:
            for series in panel.series:
                key = series.label, series.hue
                if key not in place:
                    place[key] = len(arms)
                    arms.append(Arm(label=series.label, hue=series.hue))
            lines = [_line(series, panel, place[series.label, series.hue]) for series in panel.series if len(series.x)]
            if lines:
                charts.append(_chart(figure, panel, lines))
    return Explorer(arms=arms, charts=charts)


def _chart(figure: str, panel: Panel, lines: Sequence[Line]) -> Chart:
    ends = panel.y_range
    if ends is None and panel.from_zero and not panel.log_y:
        values = [v for s in panel.series for row in (s.y, s.high) for v in row if v is not None]
        ends = (0.0, _ROOM * max([*values, 0.0])) if max([*values, 0.0]) > 0 else None
    return Chart(
        figure=figure,
        title=panel.title,
        xlabel=panel.xlabel,
        ylabel=panel.ylabel,
        lines=lines,
        log_x=panel.log_x,
        log_y=panel.log_y,
        y_range=ends,
        ticks=panel.ticks,
    )


def _line(series: Series, panel: Panel, arm: int) -> Line:
    """Measurements without an order are put into that of x, in which the crosshair looks for them."""
    order = sorted(range(len(series.x)), key=lambda i: series.x[i]) if series.kind == "points" else range(len(series.x))

    def ordered(values: Sequence[float | None]) -> list[float | None]:
        return [values[i] for i in order] if values else []

    return Line(
        arm=arm,
        over=Columns({panel.xlabel: [series.x[i] for i in order]}),
        rows=[ordered(series.y)],
        low=ordered(series.low),
        high=ordered(series.high),
        mark=_MARKS[series.kind],
    )
