"""Curves of studies and of the doctor: the same panels as the pictures', in a browser too."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from normscope.doctor.report.page import render_doctor
from normscope.report.chart import Panel, Series
from normscope.report.explorer import encoded
from normscope_studies.engine.page import StudyFigure
from report.axe import violations
from report.devtools import Tab
from report.diagnoses import broken
from report.test_study_page import FOUND, page as study_page

MEASURED = Series(
    label="Pre-LN",
    kind="measured",
    hue=0,
    x=[1, 2, 3],
    y=[1.0, None, 4.0],
    low=[0.5, None, 3.0],
    high=[2.0, None, 5.0],
)
PREDICTED = Series(
    label="Pre-LN, predicted", kind="predicted", hue=0, x=[1, 2, 3], y=[1.1, 2.0, 3.9]
)
POINTS = Series(label="Pre-LN", kind="points", hue=1, x=[3, 1, 2], y=[30.0, 10.0, 20.0])
PANEL = Panel(title="Size", xlabel="block", ylabel="q", series=[MEASURED, PREDICTED])


def chart_of(*panels: Panel) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encoded({"one": panels}))
    return found


def test_series_become_lines_with_their_band_their_kind_and_their_hue() -> None:
    data = chart_of(PANEL)
    assert [(arm["label"], arm["hue"], arm["facets"]) for arm in data["arms"]] == [
        ("Pre-LN", 0, {}),
        ("Pre-LN, predicted", 0, {}),
    ]
    (chart,) = data["charts"]
    assert (chart["figure"], chart["title"], chart["x"], chart["y"]) == (
        "one",
        "Size",
        "block",
        "q",
    )
    first, second = chart["lines"]
    assert (first["low"], first["high"]) == ([0.5, None, 3], [2, None, 5])
    assert "mark" not in first
    assert second["mark"] == "dashed"


def test_measurements_without_an_order_are_put_into_one() -> None:
    data = chart_of(replace(PANEL, series=[MEASURED, POINTS]))
    assert len(data["arms"]) == 2  # a label in two hues is two
    line = data["charts"][0]["lines"][1]
    assert line["mark"] == "points"
    assert data["tables"][line["table"]] == [["block", "steps", [1, 1, 1]]]
    assert [value / 10 ** line["digits"] for value in line["rows"][0]] == [10, 20, 30]


def test_ends_ticks_and_scales_are_the_picture_s() -> None:
    chart = chart_of(replace(PANEL, log_x=True, ticks=["a", "b"], y_range=(0.5, 9.0)))["charts"][0]
    assert (chart["logX"], chart["logY"], chart["range"], chart["ticks"]) == (
        True,
        False,
        [0.5, 9],
        ["a", "b"],
    )
    assert chart_of(replace(PANEL, from_zero=True))["charts"][0]["range"] == [0, 5.25]
    assert chart_of(PANEL)["charts"][0]["range"] is None
    assert chart_of(replace(PANEL, series=[]))["charts"] == []


def test_a_study_s_figure_has_a_chart_for_each_panel(tab: Tab, tmp_path: Path) -> None:
    figure = StudyFigure.of_panels(
        panels=[PANEL, replace(PANEL, title="Other", log_y=True)],
        told="Two",
        name="two_panels",
        title="Two",
        caption="C.",
    )
    page = tmp_path / "study.html"
    page.write_text(study_page(figures=[figure, *FOUND.figures]), encoding="utf-8")
    tab.open(page.as_uri(), height=4_000)
    tab.soon("normscope.views.map(v => v.plot.scales.y.distr)", [1, 3])
    assert tab.js("document.querySelectorAll('#f-two-panels .plot canvas').length") == 2
    assert (
        tab.js(
            "[...document.querySelectorAll('figure > svg')].filter(s => s.checkVisibility()).length"
        )
        == 2
    )
    assert tab.js(
        "document.querySelector('#explore').nextElementSibling.querySelector('#f-two-panels') !== "
        "null"
    )
    assert tab.js("document.querySelector('#explore-smooth')") is None
    tab.js("normscope.views[0].rows.get(0).button.click()")
    assert tab.js("normscope.views.map(v => v.drawn.lines.length)") == [1, 1]
    assert tab.log == []
    assert violations(tab) == []


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("width", [390, 1280])
def test_a_diagnosis_is_explored_over_depth(tab: Tab, tmp_path: Path, width: int) -> None:
    page = tmp_path / "doctor.html"
    page.write_text(render_doctor(broken()), encoding="utf-8")
    tab.open(page.as_uri(), width=width, height=6_000)
    tab.soon("normscope.views.length > 0 && normscope.views.every(v => v.plot)", wanted=True)
    assert (
        tab.js("normscope.views.length")
        == tab.js("document.querySelectorAll('.plot canvas').length")
        > 0
    )
    assert tab.js("document.documentElement.scrollWidth") == width
    assert tab.log == []
    assert violations(tab) == []
