"""How a page that can be explored is put together: templates, styles, its script and policy, and its charts as JSON.

Numbers are short, and no character of the data could end its element.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .chart import Chart, ChartColumns, ChartLine, CurveSwitch, Explorer, Kind, Panel, Series
from .words import printable

_TEMPLATES = Path(__file__).parent / "templates"


def environment() -> Environment:
    """The environment of the templates: everything is escaped and printable, and a name not given is an error."""
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def style_sheet(*more: str) -> str:
    """The style sheet of all pages, followed by those named in `more`."""
    return "".join((_TEMPLATES / f"{name}.css").read_text(encoding="utf-8") for name in ("style", *more))


VENDOR = Path(__file__).parent / "vendor" / "uplot"
_PARTS = (
    "numbers", "data", "state", "smooth", "paths", "chart", "pointer", "legend", "figure", "controls", "export",
    "tables", "reload", "main",
)  # fmt: skip
"""Files of `js/` in the order in which they stand in the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scripted:
    """What a template needs: all of it goes into the page as it is."""

    policy: str
    css: str
    data: str
    script: str


def scripted(explorer: Explorer, *sheets: str) -> _Scripted:
    """A page's data beside the script that draws it; sheets: the style sheets that the page has beside the house's."""
    css = f"{(VENDOR / 'uPlot.min.css').read_text(encoding='utf-8')}\n{style_sheet(*sheets, 'explore')}"
    script = source()
    # Attributes of pictures are styled in place; `style-src` is for browsers that do not tell elements from attributes.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src 'unsafe-inline'; "
        f"style-src-elem '{_hash(css)}'; style-src-attr 'unsafe-inline'; img-src data:"
    )
    return _Scripted(policy=policy, css=css, data=encoded(explorer), script=script)


@cache
def source() -> str:
    """uPlot, then our own files in one scope. Raises ValueError where it holds what would end its element."""
    own = "".join((Path(__file__).parent / "js" / f"{name}.js").read_text(encoding="utf-8") for name in _PARTS)
    licence, uplot = ((VENDOR / name).read_text(encoding="utf-8") for name in ("LICENSE", "uPlot.iife.min.js"))
    text = f'/*\n{licence}*/\n{uplot}(() => {{\n"use strict";\n{_bare(own)}}})();\n'
    if any(end in text.lower() for end in ("</script", "<!--", "<script")):
        raise ValueError("the script would end its own element")
    return text


def _bare(script: str) -> str:
    """Without lines of comment and indentation, which every page would carry; the files have them."""
    lines = (line.strip() for line in re.sub(r"(?ms)^\s*/\*\*.*?\*/\n", "", script).splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_DIGITS = 4
"""Significant digits of a value: more cannot be read off a chart or its crosshair."""
_SHARE = 1e-4
"""How far a column may lie from a fixed share of the first: epochs are recorded to four decimals."""
_REACH = 9.0
"""Largest over smallest value of a line that is written in multiples of a unit."""
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&'"}


def encoded(explorer: Explorer) -> str:
    """The page's data. Inside of strings `<`, `>`, `&` and everything that is not ASCII are written as escapes."""
    tables: list[ChartColumns] = []
    data: dict[str, Any] = {
        "arms": [
            {
                "label": printable(arm.label),
                "facets": {name: printable(value) for name, value in arm.facets.items()},
                "hue": arm.hue,
                "variant": arm.variant,
                "shown": arm.shown,
            }
            for arm in explorer.arms
        ],
        "charts": [_chart(chart, tables) for chart in explorer.charts if chart.lines],
    }
    data["tables"] = [_table(table) for table in tables]
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)


def _chart(chart: Chart, tables: list[ChartColumns]) -> dict[str, Any]:
    return {
        "figure": chart.figure,
        "title": printable(chart.title),
        "x": chart.xlabel,
        "y": chart.ylabel,
        "logX": chart.log_x,
        "logY": chart.log_y,
        "range": None if chart.y_range is None else _values(chart.y_range),
        "level": None if chart.level is None else [chart.level[0], *_values(chart.level[1:])],
        "ticks": [printable(tick) for tick in chart.ticks],
        "frames": list(chart.frames),
        "lines": [_line(line, tables) for line in chart.lines],
    }


def _line(line: ChartLine, tables: list[ChartColumns]) -> dict[str, Any]:
    place = next((i for i, table in enumerate(tables) if table is line.over), len(tables))
    if place == len(tables):
        tables.append(line.over)
    found: dict[str, Any] = {"arm": line.arm, "table": place, **_rows(line.rows)}
    if line.low:
        found |= {"low": _values(line.low), "high": _values(line.high)}
    for key, value in (("seeds", list(line.seeds)), ("lights", list(line.lights))):
        found |= {key: value} if value else {}
    if line.crosses:
        found["crosses"] = [_values(cross) for cross in line.crosses]
    if line.kind in _MARKS:
        found["mark"] = _MARKS[line.kind]
    return found if line.frame is None else found | {"frame": line.frame}


def _rows(rows: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """Values, or whole multiples of a decimal unit where these are shorter and leave each three digits or more."""
    plain = [_values(row) for row in rows]
    sizes = [abs(value) for row in plain for value in row if value]
    if not sizes or max(sizes) > _REACH * min(sizes):
        return {"rows": plain}
    digits = _DIGITS - 1 - math.floor(math.log10(max(sizes)))
    scaled = [[None if value is None else round(value * 10.0**digits) for value in row] for row in plain]
    return {"digits": digits, "rows": scaled}


def _table(table: ChartColumns) -> list[list[Any]]:
    """Each column by its name, in the shortest of its forms: differences of counts, a share of the first, or values."""
    first = next(iter(table.by_name.values()))
    found: list[list[Any]] = []
    for name, column in table.by_name.items():
        if column and all(float(value).is_integer() for value in column):
            counts = [int(value) for value in column]
            found.append([name, "steps", [after - before for before, after in zip([0, *counts], counts, strict=False)]])
        elif (
            found
            and first[-1]
            and all(abs(v - at * column[-1] / first[-1]) <= _SHARE for at, v in zip(first, column, strict=True))
        ):
            found.append([name, "share", column[-1] / first[-1]])
        else:
            found.append([name, "values", _values(column, _DIGITS + 1)])
    return found


def _values(values: Iterable[float | None], digits: int = _DIGITS) -> list[float | int | None]:
    return [_short(value, digits) for value in values]


def _short(value: float | None, digits: int) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


_MARKS: Mapping[Kind, str] = {"predicted": "dashed", "claimed": "dotted", "points": "points"}
"""By kind, what the script draws in place of a line."""
_ROOM = 1.05
"""The upper end of an axis from 0, over the largest value."""


def panels_explorer(figures: Mapping[str, Sequence[Panel]]) -> Explorer:
    """The charts of a page by the names of their figures, in which a label is an arm."""
    arms, charts = list[CurveSwitch](), list[Chart]()
    for figure, panels in figures.items():
        place: dict[tuple[str, int], int] = {}
        for panel in panels:
            for series in panel.series:
                key = series.label, series.hue
                if key not in place:
                    place[key] = len(arms)
                    arms.append(CurveSwitch(label=series.label, hue=series.hue))
            lines = [
                _series_line(series, panel, place[series.label, series.hue]) for series in panel.series if len(series.x)
            ]
            if lines:
                charts.append(_panel_chart(figure, panel, lines))
    return Explorer(arms=arms, charts=charts)


def _panel_chart(figure: str, panel: Panel, lines: Sequence[ChartLine]) -> Chart:
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


def _series_line(series: Series, panel: Panel, arm: int) -> ChartLine:
    """Measurements without an order are put into that of x, in which the crosshair looks for them."""
    order = sorted(range(len(series.x)), key=lambda i: series.x[i]) if series.kind == "points" else range(len(series.x))

    def ordered(values: Sequence[float | None]) -> list[float | None]:
        return [values[i] for i in order] if values else []

    return ChartLine(
        arm=arm,
        over=ChartColumns({panel.xlabel: [series.x[i] for i in order]}),
        rows=[ordered(series.y)],
        low=ordered(series.low),
        high=ordered(series.high),
        kind=series.kind,
    )
