"""The pictures: well-formed, the same each time, honest about what is missing."""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib as mpl
import pytest

from normscope.report.comparison.contents import BlockPlace, ComparisonPage, GradientProfile, Name, RateCurve, RunCurve
from normscope.report.comparison.plots import curves_svg, gradient_svg, rates_svg, schedule_svg
from normscope.report.lines import styles_for
from normscope.report.svg import CSS_NAMES, HUES, INK, inlined

NS = "{http://www.w3.org/2000/svg}"


def curve(*rows: list[float], group: str = "a", variant: str = "") -> RunCurve:
    return RunCurve(name=Name(group, variant), updates=range(max(map(len, rows), default=0)), seeds_values=rows)


def test_group_decides_hue_and_variant_the_dash() -> None:
    names = [Name("Post-LN", "0"), Name("Post-LN", "400"), Name("Pre-LN", "400"), Name("Pre-LN", "0")]
    styles = styles_for(names)
    assert [styles[k].color for k in styles] == [HUES[0], HUES[0], HUES[1], HUES[1]]
    looks = [(styles[k].dash, styles[k].marker) for k in styles]
    assert looks[0] == looks[3] != looks[1] == looks[2]


def test_pictures_are_xml_with_title_and_words(comparison: ComparisonPage) -> None:
    for svg in (
        curves_svg(comparison.valid_curves, ylabel="nats", title="A < B & C", baseline=6.0),
        gradient_svg(comparison.gradient_profiles),
        schedule_svg(comparison.schedules),
    ):
        root = ET.fromstring(svg)
        assert root.attrib["role"] == "img"
        title, desc = root.find(f"{NS}title"), root.find(f"{NS}desc")
        assert title is not None
        assert title.text
        assert desc is not None
        assert "Pre-LN, no warm-up" in (desc.text or "")
        assert "matplotlib" not in svg.lower()
        assert not re.search(r"\d{4}-\d\d-\d\dT", svg)


def test_words_of_a_picture_are_its_numbers() -> None:
    svg = curves_svg([curve([4.0, 2.0], [2.0, 1.0], group="x & y")], ylabel="nats")
    assert ET.fromstring(svg).findtext(f"{NS}desc") == "x & y: 3.000 at update 0 to 1.500 at update 1"


def test_same_curves_same_bytes_and_no_trace_left(comparison: ComparisonPage) -> None:
    before = dict(mpl.rcParams)
    first, second = (curves_svg(comparison.valid_curves, ylabel="nats") for _ in range(2))
    assert first == second
    assert dict(mpl.rcParams) == before


def test_reader_s_settings_change_nothing(comparison: ComparisonPage) -> None:
    plain = schedule_svg(comparison.schedules)
    with mpl.rc_context({"font.size": 30, "axes.grid": False, "lines.linewidth": 9}):
        assert schedule_svg(comparison.schedules) == plain


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(
    ("row", "stopped"),
    [([3.0, 2.0, 1.0], False), ([3.0, 2.0], False), ([3.0, math.nan, 1.0], False), ([3.0, math.nan], True),
     ([3.0, math.inf], True), ([math.nan], True), ([], False)],
)  # fmt: skip
def test_a_cross_marks_only_runs_that_ended_in_a_non_finite_value(row: list[float], stopped: bool) -> None:
    other = [3.0, 2.5, 2.0]
    with_row = curves_svg([curve(other, row)], ylabel="nats")
    crosses = len(re.findall(r"<use [^>]*stroke-width: ?3\b|stroke-width: 3[;\"]", with_row))
    assert (crosses > 0) == stopped
    assert "nan" not in re.sub(r'id="[^"]*"|href="[^"]*"', "", with_row).lower()


def test_a_diverged_run_turns_the_axis_not_the_others_flat() -> None:
    """Log scale: 100 times the loss must not take 100 times the height."""
    tall = curves_svg([curve([5.0, 4.0, 3.0]), curve([5.0, 50.0, 5000.0], group="b")], ylabel="nats")
    flat = curves_svg([curve([5.0, 4.0, 3.0]), curve([5.0, 6.0, 7.0], group="b")], ylabel="nats")
    assert len(re.findall('id="ytick_', tall)) != len(re.findall('id="ytick_', flat))


def test_configurations_with_one_schedule_share_a_line_in_ink() -> None:
    rates = [0.1, 0.2]
    same = [curve(rates, group="Post-LN", variant="4"), curve(rates, group="Pre-LN", variant="4")]
    assert not set(re.findall("#[0-9a-f]{6}", schedule_svg(same))) & set(HUES)
    assert INK in schedule_svg(same)
    apart = [same[0], curve([0.1, 0.3], group="Pre-LN", variant="4")]
    assert set(HUES[:2]) <= set(re.findall("#[0-9a-f]{6}", schedule_svg(apart)))


def test_rates_of_which_no_run_has_ended_are_drawn_beside_a_known_baseline() -> None:
    """As where a search is stopped within its first trial: a line alone has no place on an axis of logarithms."""
    rates = (1e-3, 1e-2)
    waiting = RateCurve(
        name=Name("Pre-LN", "no warm-up"),
        peak_lrs=rates,
        seeds=(1,),
        seeds_losses=((math.nan, math.nan),),
        seeds_replaced=((False, False),),
        initial_nats=(math.nan,),
        sensitivity=None,
        summary="",
    )
    assert "unigram baseline" not in rates_svg([waiting], baseline=3.9)
    assert "unigram baseline" in rates_svg([replace(waiting, seeds_losses=((3.0, math.nan),))], baseline=3.9)


def test_stacks_are_not_joined_and_zero_norms_do_not_break_the_log_axis() -> None:
    blocks = [BlockPlace("encoder", 1), BlockPlace("encoder", 2), BlockPlace("decoder", 1), BlockPlace("", 1)]
    profile = GradientProfile(names=[Name("$a_{")], blocks=blocks, seeds_norms=[[1.0, 2.0, 0.0, math.nan]])
    svg = gradient_svg([profile])
    assert "encoder 1 1.000, encoder 2 2.000, decoder 1 none, 1 none" in svg
    ET.fromstring(svg)


def test_thousands_of_points_stay_a_small_picture() -> None:
    long = [curve([5 - u / 50_000 for u in range(50_000)])]
    assert len(curves_svg(long, ylabel="nats")) < 60_000


def test_inlined_takes_every_colour_from_the_page(comparison: ComparisonPage) -> None:
    svg = inlined(curves_svg(comparison.valid_curves, ylabel="nats", baseline=6.0), "one")
    assert not re.findall(r"#[0-9a-f]{6}(?=[;\"])", svg)
    assert set(re.findall(r"var\((--[\w-]+)\)", svg)) <= set(CSS_NAMES.values())
    assert all(i.startswith("one-") for i in re.findall(r'\sid="([^"]+)"', svg))
    assert set(re.findall(r'href="#([^"]+)"', svg)) <= set(re.findall(r'\sid="([^"]+)"', svg))


def test_rows_longer_than_the_updates_are_refused() -> None:
    with pytest.raises(ValueError, match="3 values for 2 updates"):
        RunCurve(name=Name("a"), updates=[0, 1], seeds_values=[[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="1 norms for 2 blocks"):
        GradientProfile(names=[Name("a")], blocks=[BlockPlace("x", 1), BlockPlace("x", 2)], seeds_norms=[[1.0]])
