"""What a page holds for its script: which points, how they are written, and that nothing gets out
of its place.
"""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from normscope.report.chart import Panel, Series
from normscope.report.chart_panels import kept
from normscope.report.comparison.contents import ComparisonPage, Name, RateCurve, RunCurve
from normscope.report.comparison.explore import explorer
from normscope.report.explorer import VENDOR, encoded, source
from normscope.report.words import printable, short_name
from report.conftest import render


def test_uplot_is_the_package_s() -> None:
    """npm's uplot 1.6.32: `npm pack uplot@1.6.32`, dist/."""
    sums = {
        "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
        "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    }
    assert {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in sums} == sums
    licence = (VENDOR / "LICENSE").read_text(encoding="utf-8")
    assert "MIT" in licence
    assert licence in source()


def test_no_peak_no_trough_and_no_end_of_a_seed_is_thinned_away() -> None:
    dice = np.random.default_rng(1)
    values_SU = dice.normal(size=(3, 5_000))
    values_SU[1, 1234], values_SU[2, 4321] = 50.0, -50.0
    values_SU[0, 2_000:] = np.nan
    values_SU[:, 3_000] = np.nan
    places = kept(values_SU, 100)
    assert places == sorted(set(places))
    assert {0, 1234, 4321, 1_999, 2_000, 3_000, 4_999} <= set(places)
    assert len(places) <= 110
    for stretch in np.array_split(np.arange(5_000), 50):
        inside = [place for place in places if stretch[0] <= place <= stretch[-1]]
        assert np.nanmax(values_SU[:, inside]) == np.nanmax(values_SU[:, stretch])
        assert np.nanmin(values_SU[:, inside]) == np.nanmin(values_SU[:, stretch])


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (2, 1), (2, 30)])
def test_what_is_short_is_kept_whole(shape: tuple[int, int]) -> None:
    assert kept(np.ones(shape), 30) == list(range(shape[1]))


class Looked(str):
    """A text that counts how often texts are compared with one another."""

    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Looked.times += 1
        return str.__eq__(self, other)


def looks_at(arms: int) -> int:
    """How often labels are compared for the data of two charts with so many curves."""
    labels = [Looked(f"arm {number}") for number in range(arms)]
    series = [
        Series(label=label, hue=0, x=[1, 2], y=[1.0, number], lights=labels[:1])
        for number, label in enumerate(labels)
    ]
    panel = Panel(title="", xlabel="update", ylabel="loss", series=series)
    Looked.times = 0
    encoded({"a": [panel], "b": [panel]})
    return Looked.times


def test_a_curve_is_found_without_a_look_at_all_others() -> None:
    assert looks_at(80) <= 2.5 * looks_at(40)


def test_numbers_are_short_and_columns_stand_once() -> None:
    further = {"epoch": [0.01, 0.03, 0.09], "rate": [1e-7, 0.25, 3.14159265]}
    rows = [[2.34567, None, 9.87654], [1.5, math.nan, math.inf]]
    one = Series(label="a", hue=0, x=[1, 3, 9], y=[2.0, None, 9.9], rows=rows, further=further)
    other = replace(one, rows=[[1e-5, 1.0, 123.456]])
    data = json.loads(
        encoded({"f": [Panel(title="t", xlabel="update", ylabel="y", series=[one, other])]})
    )
    assert data["tables"] == [
        [
            ["update", "steps", [1, 2, 6]],
            ["epoch", "share", pytest.approx(0.01)],
            ["rate", "values", [1e-7, 0.25, 3.1416]],
        ]
    ]
    first, second = data["charts"][0]["lines"]
    assert (first["digits"], first["rows"]) == (3, [[2346, None, 9877], [1500, None, None]])
    assert "digits" not in second
    assert second["rows"] == [[1e-5, 1, 123.5]]
    assert len(data["arms"]) == 1
    for wrong in ({"x": [1, 2]}, {"y": []}, {"rows": [[1.0]]}, {"further": {"epoch": [0.1]}}):
        with pytest.raises(ValueError, match="columns of one length"):
            replace(one, **wrong)


@pytest.mark.parametrize(
    "text",
    ["</script><img src=x onerror=alert(1)>", "<!--<script>", "\u202e\u2028\x00\x1b[31m", "'\"&"],
)
def test_text_cannot_leave_its_string(text: str) -> None:
    one = Series(label=text, hue=0, facets={"Placement": text}, x=[1], y=[2.0])
    plain = encoded({"f": [Panel(title=text, xlabel="x", ylabel="y", series=[one])]})
    assert plain.isascii()
    assert plain.isprintable()
    assert not set("<>&'") & set(plain)
    shown = printable(text)
    assert ("\ufffd" in shown) == ("\x00" in text)
    assert json.loads(plain)["arms"][0] == {
        "label": shown, "facets": {"Placement": shown}, "hue": 0, "variant": 0, "shown": True,
    }  # fmt: skip


def test_the_policy_names_the_script_and_the_style_of_the_page(sample_page: str) -> None:
    (policy,) = re.findall(r'Security-Policy" content="([^"]+)"', sample_page.replace("&#39;", "'"))
    script = sample_page.rpartition("<script>")[2].partition("</script>")[0]
    style = sample_page.partition("<style>")[2].partition("</style>")[0]
    for name, text in (("script-src", script), ("style-src-elem", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]


def test_curves_stand_over_what_their_clock_knows(comparison: ComparisonPage) -> None:
    curve = comparison.train_curves[0]
    updates = list(curve.updates)[1:]
    clock = {
        "update": updates,
        "target tokens": [10 * u for u in updates],
        "epoch": [u / 100 for u in updates],
        "cumulative learning rate": [u**0.5 for u in updates],
    }
    charts = explorer(replace(comparison, clocks={curve.name: clock}))
    first, second, *_ = charts["train-loss"][0].series
    assert list(first.further) == ["target tokens", "epoch", "cumulative learning rate"]
    assert list(first.further["target tokens"]) == [10 * u for u in first.x]
    assert first.further == charts["gradient-over-updates"][0].series[0].further
    assert second.further == {}


def test_what_the_pictures_leave_out_is_there_and_off_and_points_know_their_run(
    comparison: ComparisonPage,
) -> None:
    names = [configuration.name for configuration in comparison.configurations]
    rates = RateCurve(
        name=Name("Post-LN"), peak_lrs=[1e-3, 2e-3], seeds=[1],
        seeds_losses=[[2.0, 3.0]], seeds_replaced=[[False, True]],
        initial_nats=[3.0], sensitivity=None, summary="", configurations=names[:2],
    )  # fmt: skip
    undrawn = replace(comparison.valid_curves[1])
    found = explorer(
        replace(
            comparison,
            valid_curves=[comparison.valid_curves[0]],
            undrawn_curves=[undrawn],
            rate_curves=[rates],
        )
    )
    data = json.loads(encoded(found))
    assert [arm["shown"] for arm in data["arms"]] == [True, False, True, True, True]
    (panel,) = found["loss-by-rate"]
    assert panel.log_x
    assert panel.series[0].crosses == [(2e-3, 3.0)]
    charts = {chart["figure"]: chart["lines"] for chart in data["charts"]}
    (line,) = charts["loss-by-rate"]
    assert line["lights"] == [0, 1]
    assert data["arms"][line["arm"]]["label"] == "Post-LN"
    assert [line["arm"] for line in charts["valid-loss"]] == [0, 1]


def test_a_stopped_run_has_its_cross_at_its_last_finite_value(comparison: ComparisonPage) -> None:
    (cross,) = explorer(comparison)["valid-loss"][0].series[3].crosses
    assert cross == (800, comparison.valid_curves[3].seeds_values[2][16])
    never = RunCurve(name=comparison.valid_curves[0].name, updates=[1], seeds_values=[[math.nan]])
    (panel,) = explorer(replace(comparison, valid_curves=[never]))["valid-loss"]
    assert panel.series[0].crosses == [(1, None)]


def test_a_run_that_has_not_begun_has_no_line(comparison: ComparisonPage) -> None:
    names = [curve.name for curve in comparison.valid_curves]
    none = [RunCurve(name=name, updates=[], seeds_values=[[], []]) for name in names[:2]]
    never = RunCurve(name=names[2], updates=[1], seeds_values=[[math.nan]])
    found = explorer(
        replace(comparison, train_curves=[*none, never], clocks={names[2]: {"update": []}})
    )
    assert not found["train-loss"][0].series
    figures = [chart["figure"] for chart in json.loads(encoded(found))["charts"]]
    assert "train-loss" not in figures
    assert figures[0] == "valid-loss"
    bare = [replace(comparison.gradient_profiles[0], blocks=[], seeds_norms=[[]])]
    assert explorer(
        replace(comparison, train_curves=none, valid_curves=none, gradient_profiles=bare)
    )


@pytest.mark.thorough
def test_a_page_of_twelve_arms_three_seeds_and_a_thousand_updates_stays_small(
    large: ComparisonPage,
) -> None:
    assert len(render(large).encode()) <= 500_000


def test_names_stay_names_and_differ() -> None:
    assert short_name("Post-LN, ←→ ‖x‖² μ 中文") == "Post-LN, ←→ ‖x‖² μ 中文"
    assert short_name("a\nb\x1b[1m") == "a\nb\ufffd[1m"
    one, other = (Name("long " * 2_000 + end) for end in "ab")
    assert one != other
    assert len(str(one)) <= 200
