"""The assembly of a page that can be explored: templates, styles, its script and policy, and its
charts as JSON.

Numbers are short, and no character of the data could end its element.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from .chart import Kind, Panel, Series
from .words import printable

_TEMPLATES = Path(__file__).parent / "templates"


def environment() -> Environment:
    """Returns the environment of the templates: everything is escaped and printable, and a name not
    given is an error.
    """
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["prose"] = _prose
    return made


def _prose(text: str) -> Markup:
    """Words with what stands between backticks as code, as a terminal shows it."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(printable(text)))))


VENDOR = Path(__file__).parent / "vendor" / "uplot"
_PARTS = (
    "numbers",
    "data",
    "state",
    "smooth",
    "paths",
    "chart",
    "pointer",
    "legend",
    "figure",
    "controls",
    "export",
    "tables",
    "main",
)
"""Files of `js/` in the order in which they stand in the page."""


def scripted(figures: Mapping[str, Sequence[Panel]], *sheets: str) -> dict[str, str]:
    """Returns the data of a page's figures beside the script that draws it, its css and its policy,
    for a template to put in as they are; sheets: style sheets beside the house's.
    """
    own = [
        (_TEMPLATES / f"{name}.css").read_text(encoding="utf-8")
        for name in ("style", *sheets, "explore")
    ]
    css = "".join([(VENDOR / "uPlot.min.css").read_text(encoding="utf-8"), "\n", *own])
    script = source()
    # Attributes of pictures are styled in place; `style-src` is for browsers that do not tell
    # elements from attributes.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src 'unsafe-inline'; "
        f"style-src-elem '{_hash(css)}'; style-src-attr 'unsafe-inline'; img-src data:"
    )
    return {"policy": policy, "css": css, "data": encoded(figures), "script": script}


@cache
def source() -> str:
    """uPlot, then our own files in one scope. Raises ValueError where it holds what would end its
    element.
    """
    own = "".join(
        (Path(__file__).parent / "js" / f"{name}.js").read_text(encoding="utf-8") for name in _PARTS
    )
    # Every page would carry lines of comment and indentation; the files have them.
    lines = (line.strip() for line in re.sub(r"(?ms)^\s*/\*\*.*?\*/\n", "", own).splitlines())
    bare = "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))
    licence, uplot = (
        (VENDOR / name).read_text(encoding="utf-8") for name in ("LICENSE", "uPlot.iife.min.js")
    )
    text = f'/*\n{licence}*/\n{uplot}(() => {{\n"use strict";\n{bare}}})();\n'
    if any(end in text.lower() for end in ("</script", "<!--", "<script")):
        raise ValueError("the script would end its own element")
    return text


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_DIGITS = 4
"""Significant digits of a value: more cannot be read off a chart or its crosshair."""
_SHARE = 1e-4
"""The deviation of a column from a fixed share of the first that is allowed: epochs are recorded to
four decimals.
"""
_LEAST = 1e-290
"""The least value that is written in multiples of a unit: doubles have no units far below it."""
_REACH = 9.0
"""Largest over smallest value of a line that is written in multiples of a unit."""
_ROOM = 1.05
"""The upper end of an axis from 0, over the largest value."""
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&'"}


_MARKS: Mapping[Kind, str] = {"predicted": "dashed", "claimed": "dotted", "points": "points"}
"""The mark that the script draws in place of a line, by kind."""


def _arm(look: Series) -> dict[str, Any]:
    """Returns what the page knows of an arm, of the first of its curves."""
    return {
        "label": printable(look.label),
        "facets": {name: printable(value) for name, value in look.facets.items()},
        "hue": look.hue,
        "variant": look.variant,
        "shown": look.shown,
    }


def encoded(figures: Mapping[str, Sequence[Panel]]) -> str:
    """Returns the page's data: the charts of each figure, whose element has the id by which it is
    given.

    Inside of strings `<`, `>`, `&` and everything that is not ASCII are written as escapes.
    """
    charts = []
    for figure, panels in figures.items():
        for panel in panels:
            drawn = [one for one in panel.series if len(one.x)]
            if drawn:
                charts.append((figure, panel, drawn))
    looks: dict[tuple[str, ...], Series] = {}
    for figure, _, drawn in charts:
        for one in drawn:
            looks.setdefault(_switch(figure, one), one)
    arms = {switch: place for place, switch in enumerate(looks)}
    labels = {switch[0]: place for switch, place in reversed(arms.items())}
    tables = _Tables()
    charted = []
    for figure, panel, drawn in charts:
        lines = [_line(one, panel, arms[_switch(figure, one)], labels, tables) for one in drawn]
        charted.append(_chart(figure, panel, lines))
    data = {
        "arms": [_arm(look) for look in looks.values()],
        "charts": charted,
        "tables": [_table(table) for table in tables.each],
    }
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)


class _Tables:
    """The tables that lines are drawn over, each once: curves with the same points share theirs."""

    def __init__(self) -> None:
        self.each: list[Mapping[str, Sequence[float]]] = []
        self._places: dict[tuple[tuple[str, tuple[float, ...]], ...], int] = {}

    def place(self, table: Mapping[str, Sequence[float]]) -> int:
        """Returns the place of a table in `each`, and adds it where it is new."""
        key = tuple((name, tuple(column)) for name, column in table.items())
        if key not in self._places:
            self._places[key] = len(self.each)
            self.each.append(table)
        return self._places[key]


def _switch(figure: str, one: Series) -> tuple[str, ...]:
    """Returns the key of the curves that are switched on and off together."""
    where = [f"{name}: {value}" for name, value in one.facets.items()] or [figure]
    return (one.label, str(one.hue), str(one.variant), *where)


def _chart(figure: str, panel: Panel, lines: list[dict[str, Any]]) -> dict[str, Any]:
    ends = panel.y_range
    if ends is None and panel.from_zero and not panel.log_y:
        most = max(
            v
            for one in panel.series
            for row in (one.y, one.high, (0.0,))
            for v in row
            if v is not None
        )
        ends = (0.0, _ROOM * most) if most > 0 else None
    return {
        "figure": figure,
        "title": printable(panel.title),
        "x": panel.xlabel,
        "y": panel.ylabel,
        "logX": panel.log_x,
        "logY": panel.log_y,
        "range": None if ends is None else _values(ends),
        "level": None if panel.level is None else [panel.level[0], *_values(panel.level[1:])],
        "ticks": [printable(tick) for tick in panel.ticks],
        "frames": list(panel.frames),
        "lines": lines,
    }


def _line(
    one: Series,
    panel: Panel,
    arm: int,
    labels: Mapping[str, int],
    tables: _Tables,
) -> dict[str, Any]:
    """Measurements without an order are put into that of x, in which the crosshair looks for them.

    labels: of all arms, the first one's place of each label.
    """
    order = (
        sorted(range(len(one.x)), key=lambda i: one.x[i])
        if one.kind == "points"
        else range(len(one.x))
    )
    over = {panel.xlabel: [one.x[i] for i in order]}
    for name, column in one.further.items():
        over[name] = [column[i] for i in order]
    rows = []
    for row in one.rows or [one.y]:
        rows.append([row[i] for i in order])
    found: dict[str, Any] = {"arm": arm, "table": tables.place(over), **_rows(rows)}
    if one.low and not one.rows:
        found |= {"low": _values(one.low), "high": _values(one.high)}
    if one.seeds:
        found["seeds"] = list(one.seeds)
    if one.lights:
        found["lights"] = [labels.get(label, -1) for label in one.lights]
    if one.crosses:
        found["crosses"] = [_values(cross) for cross in one.crosses]
    if one.kind in _MARKS:
        found["mark"] = _MARKS[one.kind]
    return found if one.frame is None else found | {"frame": one.frame}


def _rows(rows: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """Returns values, or whole multiples of a decimal unit where these are shorter and leave each
    three digits or more.
    """
    plain = [_values(row) for row in rows]
    sizes = [abs(value) for row in plain for value in row if value]
    if not sizes or min(sizes) < _LEAST or max(sizes) > _REACH * min(sizes):
        return {"rows": plain}
    digits = _DIGITS - 1 - math.floor(math.log10(max(sizes)))
    scaled = []
    for row in plain:
        scaled.append([None if value is None else round(value * 10.0**digits) for value in row])
    return {"digits": digits, "rows": scaled}


def _table(table: Mapping[str, Sequence[float]]) -> list[list[Any]]:
    """Returns each column by its name, in the shortest of its forms: differences of counts, a share
    of the first, or values.
    """
    first = next(iter(table.values()))
    found: list[list[Any]] = []
    for name, column in table.items():
        if column and all(float(value).is_integer() for value in column):
            counts = [int(value) for value in column]
            found.append(
                [
                    name,
                    "steps",
                    [after - before for before, after in zip([0, *counts], counts, strict=False)],
                ]
            )
        elif (
            found
            and first[-1]
            and all(
                abs(v - at * column[-1] / first[-1]) <= _SHARE
                for at, v in zip(first, column, strict=True)
            )
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
