"""The pictures of a comparison: well-formed, the same each time, honest about what is missing."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace

import matplotlib as mpl
import pytest

from normscope.report.chart import Panel
from normscope.report.chart_panels import chart_panels
from normscope.report.comparison.contents import (
    BlockPlace,
    ComparedConfiguration,
    ComparisonPage,
    GradientProfile,
    Name,
    RateCurve,
    RunCurve,
    SeedResult,
    Status,
)
from normscope.report.comparison.explore import explorer
from normscope.report.comparison.page import endings_svg, pictures
from normscope.report.svg import CSS_NAMES, HUES, INK, inlined
from normscope.report.words import Tone, TonedWords

GROUPS = [f"Placement {i}" for i in range(1, 10)]
VARIANTS = ["no warm-up", "warm-up 150"]


@pytest.fixture
def empty(comparison: ComparisonPage) -> ComparisonPage:
    """A page of which nothing has been measured."""
    nothing = dict.fromkeys(
        (
            "configurations",
            "valid_curves",
            "train_curves",
            "gradient_profiles",
            "gradient_curves",
            "schedules",
        ),
        (),
    )
    return replace(comparison, unigram_loss_nats=None, **nothing)


def curve(*rows: Sequence[float], group: str = "a", variant: str = "") -> RunCurve:
    return RunCurve(
        name=Name(group, variant), updates=range(max(map(len, rows), default=0)), seeds_values=rows
    )


def many_curves() -> list[RunCurve]:
    return [
        RunCurve(
            name=Name(group, variant),
            updates=[125, 250],
            seeds_values=[[5.0, 4.0 + i / 10], [5.2, 4.2 + i / 10]],
        )
        for i, group in enumerate(GROUPS)
        for variant in VARIANTS
    ]


def configuration(placement: str, variant: str, *losses: float | None) -> ComparedConfiguration:
    seeds = [
        SeedResult(seed=i, status=Status.FINISHED, updates=1, valid_loss_nats=loss, summed_lr=1.0)
        for i, loss in enumerate(losses)
    ]
    return ComparedConfiguration(
        name=Name(placement, variant),
        warmup_updates=0,
        peak_lr=1e-3,
        optimizer="adam",
        seeds=seeds,
        verdict=TonedWords("learned", Tone.GOOD),
        summary="",
    )


def ended(page: ComparisonPage, *rows: ComparedConfiguration) -> ComparisonPage:
    curves = [RunCurve(name=row.name, updates=[1, 2], seeds_values=[[5.0, 4.0]]) for row in rows]
    return replace(page, configurations=rows, valid_curves=curves)


def drawn(page: ComparisonPage) -> dict[str, str]:
    return pictures(page, explorer(page))


def panels(page: ComparisonPage, figure: str) -> list[Panel]:
    return chart_panels(explorer(page)[figure][0])


def words(svg: str) -> str:
    return ET.fromstring(svg).findtext("{http://www.w3.org/2000/svg}desc") or ""


def hues(svg: str) -> set[str]:
    return {hue for hue in HUES if hue in svg}


def test_group_decides_hue_and_variant_the_dash(empty: ComparisonPage) -> None:
    names = [("Post-LN", "0"), ("Post-LN", "400"), ("Pre-LN", "400"), ("Pre-LN", "0")]
    curves = [
        curve([3.0, 2.0 + i], group=group, variant=variant)
        for i, (group, variant) in enumerate(names)
    ]
    (panel,) = panels(replace(empty, valid_curves=curves), "valid-loss")
    assert [(one.hue, one.variant) for one in panel.series] == [(0, 0), (0, 1), (1, 1), (1, 0)]


def test_pictures_are_xml_with_title_and_words(comparison: ComparisonPage) -> None:
    for svg in drawn(comparison).values():
        root = ET.fromstring(svg)
        assert root.attrib["role"] == "img"
        assert root.findtext("{http://www.w3.org/2000/svg}title")
        assert "Pre-LN, no warm-up" in words(svg)
        assert "matplotlib" not in svg.lower()
        assert not re.search(r"\d{4}-\d\d-\d\dT", svg)


def test_words_of_a_picture_are_its_numbers(empty: ComparisonPage) -> None:
    page = replace(empty, valid_curves=[curve([4.0, 2.0], [2.0, 1.0], group="x & y")])
    assert words(drawn(page)["valid_loss"]) == "Validation loss: x & y 3.000 to 1.500"


def test_the_mean_of_the_seeds_in_their_range(empty: ComparisonPage) -> None:
    page = replace(empty, valid_curves=[curve([4.0, 2.0, 1.0], [2.0, math.nan, 1.5])])
    (one,) = panels(page, "valid-loss")[0].series
    assert (one.y, one.low, one.high) == ([3.0, 2.0, 1.25], [2.0, 2.0, 1.0], [4.0, 2.0, 1.5])


def test_same_bytes_and_no_trace_left_and_reader_s_settings_change_nothing(
    comparison: ComparisonPage,
) -> None:
    before = dict(mpl.rcParams)
    page = replace(comparison, train_curves=(), gradient_curves=(), gradient_profiles=())
    first, second = (drawn(page) for _ in range(2))
    assert first == second
    assert dict(mpl.rcParams) == before
    with mpl.rc_context({"font.size": 30, "axes.grid": False, "lines.linewidth": 9}):
        assert drawn(page) == first


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(
    ("row", "stopped"),
    [
        ([3.0, 2.0, 1.0], False),
        ([3.0, 2.0], False),
        ([3.0, math.nan, 1.0], False),
        ([3.0, math.nan], True),
        ([3.0, math.inf], True),
        ([math.nan], True),
        ([], False),
    ],
)
def test_a_cross_marks_only_runs_that_ended_in_a_non_finite_value(
    empty: ComparisonPage, row: list[float], stopped: bool
) -> None:
    svg = drawn(replace(empty, valid_curves=[curve([3.0, 2.5, 2.0], row)]))["valid_loss"]
    assert ("stopped at a non-finite value" in words(svg)) == stopped
    assert ("<text" in svg and ">stopped at a non-finite value<" in svg) == stopped
    assert "nan" not in re.sub(r'id="[^"]*"|href="[^"]*"', "", svg).lower()


def test_a_diverged_run_turns_the_axis_not_the_others_flat(empty: ComparisonPage) -> None:
    """Log scale: 100 times the loss must not take 100 times the height."""
    for high, log in ((5000.0, True), (7.0, False)):
        curves = [curve([5.0, 4.0, 3.0]), curve([5.0, 6.0, high], group="b")]
        assert panels(replace(empty, valid_curves=curves), "valid-loss")[0].log_y == log


def test_configurations_with_one_schedule_share_a_line_in_ink(empty: ComparisonPage) -> None:
    rates = [0.1, 0.2]
    same = [curve(rates, group="Post-LN", variant="4"), curve(rates, group="Pre-LN", variant="4")]
    svg = drawn(replace(empty, schedules=same))["learning_rate"]
    assert not hues(svg)
    assert INK in svg
    assert "Post-LN, 4; Pre-LN, 4 0.1000 to 0.2000" in words(svg)
    apart = [same[0], curve([0.1, 0.3], group="Pre-LN", variant="4")]
    assert hues(drawn(replace(empty, schedules=apart))["learning_rate"]) == set(HUES[:2])


def test_rates_of_which_no_run_has_ended_are_drawn(empty: ComparisonPage) -> None:
    """As where a search is stopped within its first trial: a baseline alone would have no place."""
    waiting = RateCurve(
        name=Name("Pre-LN", "no warm-up"),
        peak_lrs=(1e-3, 1e-2),
        seeds=(1,),
        seeds_losses=((math.nan, math.nan),),
        seeds_replaced=((False, False),),
        initial_nats=(math.nan,),
        sensitivity=None,
        summary="",
    )
    page = replace(empty, unigram_loss_nats=3.9, rate_curves=[waiting])
    assert "no values yet" in drawn(page)["loss_by_rate"]
    assert "unigram baseline" not in drawn(page)["loss_by_rate"]
    begun = replace(waiting, seeds_losses=((3.0, 4.0),), seeds_replaced=((False, True),))
    svg = drawn(replace(page, rate_curves=[begun]))["loss_by_rate"]
    assert "unigram baseline" in svg
    assert "counts as the loss at initialisation" in svg
    assert "loss_by_rate" not in drawn(empty)


def test_stacks_are_not_joined_and_zero_norms_do_not_break_the_log_axis(
    empty: ComparisonPage,
) -> None:
    blocks = [
        BlockPlace("encoder", 1),
        BlockPlace("encoder", 2),
        BlockPlace("decoder", 1),
        BlockPlace("", 1),
    ]
    profile = GradientProfile(
        names=[Name("$a_{")], blocks=blocks, seeds_norms=[[1.0, 2.0, 0.0, 3.0]]
    )
    # A profile is of a configuration.
    page = replace(empty, valid_curves=[curve([1.0], group="$a_{")], gradient_profiles=[profile])
    (one,) = panels(page, "gradient-norms")[0].series
    assert one.y == [1.0, 2.0, None, None, None, 3.0]
    ET.fromstring(drawn(page)["gradient_norms"])


def test_thousands_of_points_stay_a_small_picture(empty: ComparisonPage) -> None:
    long = curve([5 - u / 50_000 for u in range(50_000)])
    assert len(drawn(replace(empty, valid_curves=[long]))["valid_loss"]) < 60_000


def test_inlined_takes_every_colour_from_the_page(comparison: ComparisonPage) -> None:
    svg = inlined(drawn(comparison)["valid_loss"], "one")
    assert not re.findall(r"#[0-9a-f]{6}(?=[;\"])", svg)
    assert set(re.findall(r"var\((--[\w-]+)\)", svg)) <= set(CSS_NAMES.values())
    assert all(i.startswith("one-") for i in re.findall(r'\sid="([^"]+)"', svg))
    assert set(re.findall(r'href="#([^"]+)"', svg)) <= set(re.findall(r'\sid="([^"]+)"', svg))


def test_rows_longer_than_the_updates_are_refused() -> None:
    with pytest.raises(ValueError, match="3 values for 2 updates"):
        RunCurve(name=Name("a"), updates=[0, 1], seeds_values=[[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="1 norms for 2 blocks"):
        GradientProfile(
            names=[Name("a")], blocks=[BlockPlace("x", 1), BlockPlace("x", 2)], seeds_norms=[[1.0]]
        )


def test_of_more_placements_than_hues_each_has_a_panel(empty: ComparisonPage) -> None:
    page = replace(empty, valid_curves=many_curves(), unigram_loss_nats=5.6)
    found = panels(page, "valid-loss")
    assert [panel.title for panel in found] == GROUPS
    assert all(
        [one.label for one in panel.series] == [*VARIANTS, "unigram baseline"] for panel in found
    )
    assert list(found[2].series[0].y) == pytest.approx([5.1, 4.3])
    assert not hues(drawn(page)["valid_loss"])
    assert len({(one.label, one.variant) for panel in found for one in panel.series[:2]}) == 2
    few = [one for one in many_curves() if one.name.group in GROUPS[: len(HUES)]]
    assert len(panels(replace(empty, valid_curves=few), "valid-loss")) == 1


def test_a_diverged_run_does_not_flatten_the_panels_and_the_baseline_is_seen(
    empty: ComparisonPage,
) -> None:
    wild = RunCurve(name=Name("Wild", "no warm-up"), updates=[1, 2], seeds_values=[[5.0, 5000.0]])
    found = panels(
        replace(empty, valid_curves=[*many_curves(), wild], unigram_loss_nats=5.6), "valid-loss"
    )
    (ends,) = {panel.y_range for panel in found}
    assert ends is not None
    assert ends[0] < 4.0 < 5.6 < ends[1] < 10
    assert not any(panel.log_y for panel in found)


def test_gradient_panels_share_a_log_axis(empty: ComparisonPage) -> None:
    blocks = [BlockPlace("encoder", 1), BlockPlace("decoder", 1)]
    profiles = [
        GradientProfile(names=[Name(g, "v")], blocks=blocks, seeds_norms=[[0.1, 2.0]])
        for g in GROUPS
    ]
    known = [curve([1.0], group=group, variant="v") for group in GROUPS]
    found = panels(replace(empty, valid_curves=known, gradient_profiles=profiles), "gradient-norms")
    assert len(found) == len(GROUPS)
    assert all(panel.log_y for panel in found)
    (ends,) = {panel.y_range for panel in found}
    assert ends == pytest.approx((0.1 / 20**0.06, 2 * 20**0.06))


def test_a_placement_has_one_hue_in_every_figure_of_a_page(empty: ComparisonPage) -> None:
    rows = [configuration(group, variant, 3.0) for group in ("A", "B") for variant in VARIANTS]
    page = ended(empty, *rows)
    for number, group in enumerate(("A", "B")):
        own = replace(
            page, valid_curves=[one for one in page.valid_curves if one.name.group == group]
        )
        assert hues(endings_svg(own)) == hues(drawn(own)["valid_loss"]) == {HUES[number]}


def test_endings_put_the_best_first_and_tell_every_seed(empty: ComparisonPage) -> None:
    page = ended(
        replace(empty, unigram_loss_nats=4.0),
        configuration("A", "no warm-up", 3.0, 3.2),
        configuration("B", "no warm-up", 2.0, 2.2),
        configuration("B", "warm-up 150", 9.0),
    )
    svg = endings_svg(page)
    assert (
        words(svg)
        == "A, no warm-up: 3.000, 3.200. B, no warm-up: 2.000, 2.200. B, warm-up 150: 9.000"
    )
    shown = re.findall(r"<text[^>]*>([^<]+)</text>", svg)
    assert shown.index("B") < shown.index("A")


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("losses", [(), (None,), (math.nan,), (math.inf, 3.0)])
def test_endings_without_values(empty: ComparisonPage, losses: tuple[float | None, ...]) -> None:
    assert words(endings_svg(ended(empty, configuration("A", "no warm-up", *losses)))).startswith(
        "A, no warm-up: "
    )


def test_the_page_shows_where_runs_ended(comparison: ComparisonPage) -> None:
    assert "non-finite" in words(endings_svg(comparison))


@pytest.mark.parametrize("rates", [7, 12])
def test_one_placement_at_many_rates_leaves_its_axes_room(
    empty: ComparisonPage, rates: int
) -> None:
    """A legend of many rows once left none, of which matplotlib warns."""
    ends = [configuration("Pre-LN", f"rate {rate}", 3.0, 3.1) for rate in range(rates)]
    assert words(endings_svg(ended(replace(empty, unigram_loss_nats=4.0), *ends))).startswith(
        "Pre-LN"
    )
