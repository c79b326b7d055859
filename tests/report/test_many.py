"""Pictures of more placements than there are hues: small multiples, and one row each where they ended."""

import math
import re
import xml.etree.ElementTree as ET

import pytest

from normscope.report.comparison.contents import (
    BlockPlace,
    ComparedConfiguration,
    ComparisonPage,
    GradientProfile,
    Name,
    RunCurve,
    SeedResult,
    Status,
)
from normscope.report.comparison.panels import curve_panels, endings_svg, profile_panels
from normscope.report.comparison.plots import curves_svg, gradient_svg, schedule_svg
from normscope.report.lines import styles_for, too_many
from normscope.report.svg import HUES, INK, house_style
from normscope.report.words import Tone, TonedWords

GROUPS = [f"Placement {i}" for i in range(1, 10)]
VARIANTS = ["no warm-up", "warm-up 150"]


def curves() -> list[RunCurve]:
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


def words(svg: str) -> str:
    return ET.fromstring(svg).findtext("{http://www.w3.org/2000/svg}desc") or ""


def test_too_many_groups_are_more_than_hues():
    names = [Name(f"{i}", "v") for i in range(len(HUES))]
    assert not too_many([*names, Name("0", "another variant")])
    assert too_many([*names, Name("one more", "v")])


@pytest.mark.thorough
def test_a_hue_is_a_placement_and_where_there_are_too_many_for_it_none_is_used():
    few = styles_for(Name(group, variant) for group in "abc" for variant in VARIANTS)
    assert [few[Name(group, VARIANTS[1])].color for group in "abc"] == list(HUES[:3])
    many = styles_for(Name(group, variant) for group in GROUPS for variant in VARIANTS)
    assert {style.color for style in many.values()} == {INK}
    looks = [(many[Name(GROUPS[0], variant)].dash, many[Name(GROUPS[0], variant)].marker) for variant in VARIANTS]
    assert looks[0] != looks[1]
    # In each picture of the page, panels and rows alike.
    for svg in (curves_svg(curves(), ylabel="nats"), schedule_svg(curves())):
        assert hues(svg) == set()


def hues(svg: str) -> set[str]:
    return {hue for hue in HUES if hue in svg}


def test_a_placement_has_one_hue_in_every_figure_of_a_page():
    """The hue of a placement in the picture of where runs ended is its hue in the curves."""
    rows = [configuration(group, variant, 3.0) for group in ("A", "B") for variant in VARIANTS]
    drawn = [RunCurve(name=row.name, updates=[1, 2], seeds_values=[[5.0, 4.0]]) for row in rows]
    styles = styles_for(row.name for row in rows)
    for number, group in enumerate(("A", "B")):
        own = [row for row in rows if row.name.group == group]
        assert hues(endings_svg(own, baseline=None, styles=styles)) == {HUES[number]}
        curves = [curve for curve in drawn if curve.name.group == group]
        assert hues(curves_svg(curves, ylabel="nats", styles=styles)) == {HUES[number]}


def test_one_panel_a_group_and_each_variant_named_once():
    with house_style():
        figure = curve_panels(curves(), ylabel="nats", baseline=5.6)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == GROUPS
    assert all(len(axes.lines) == 3 for axes in panels), "two variants and the baseline"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [*VARIANTS, "unigram baseline"]
    # The mean of the two seeds is what is drawn.
    assert list(panels[2].lines[0].get_ydata()) == pytest.approx([5.1, 4.3])


def test_a_diverged_run_does_not_flatten_the_others_and_chance_is_seen():
    wild = RunCurve(name=Name("Wild", "no warm-up"), updates=[1, 2], seeds_values=[[5.0, 5000.0]])
    with house_style():
        low, high = curve_panels([*curves(), wild], ylabel="nats", baseline=5.6).axes[0].get_ylim()
    assert low < 4.0 < 5.6 < high < 10


@pytest.mark.thorough
def test_gradient_panels_share_a_log_axis():
    profiles = [
        GradientProfile(
            names=[Name(g, "v")], blocks=[BlockPlace("encoder", 1), BlockPlace("decoder", 1)], seeds_norms=[[0.1, 2.0]]
        )
        for g in GROUPS
    ]
    with house_style():
        panels = profile_panels(profiles, ylabel="norm").axes
    assert all(axes.get_yscale() == "log" for axes in panels[: len(GROUPS)])
    assert "Placement 9, v: encoder 1 0.1000, decoder 1 2.000" in words(gradient_svg(profiles))


@pytest.mark.thorough
def test_the_pictures_turn_to_panels_on_their_own():
    many, few = curves_svg(curves(), ylabel="nats"), curves_svg(curves()[:4], ylabel="nats")
    height = [float(re.search(r'height="([\d.]+)pt"', svg)[1]) for svg in (many, few)]
    assert height[0] != height[1]
    assert words(many).count("at update 250") == 18
    assert curves_svg(curves(), ylabel="nats") == many


def test_many_configurations_with_one_schedule_share_a_short_name():
    svg = schedule_svg(curves())
    assert "Placement 9, warm-up 150" in words(svg)
    # Eighteen names below the axes would make it three times as high.
    assert float(re.search(r'height="([\d.]+)pt"', svg)[1]) < 600


def test_endings_put_the_best_first_and_tell_every_seed():
    rows = [
        configuration("A", "no warm-up", 3.0, 3.2),
        configuration("B", "no warm-up", 2.0, 2.2),
        configuration("B", "warm-up 150", 9.0),
    ]
    svg = endings_svg(rows, baseline=4.0)
    assert words(svg) == "A, no warm-up: 3.000, 3.200. B, no warm-up: 2.000, 2.200. B, warm-up 150: 9.000"
    assert svg == endings_svg(rows, baseline=4.0)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("losses", [(), (None,), (math.nan,), (math.inf, 3.0)])
def test_endings_without_values(losses):
    svg = endings_svg([configuration("A", "no warm-up", *losses)], baseline=None)
    assert words(svg).startswith("A, no warm-up: ")


def test_the_page_shows_where_runs_ended(comparison: ComparisonPage):
    svg = endings_svg(comparison.configurations, baseline=comparison.unigram_loss_nats)
    assert "non-finite" in words(svg)


@pytest.mark.parametrize("rates", [7, 12])
def test_one_placement_at_many_rates_leaves_its_axes_room(rates):
    """A legend of many rows once left none, of which matplotlib warns."""
    ends = [configuration("Pre-LN", f"rate {rate}", 3.0, 3.1) for rate in range(rates)]
    assert words(endings_svg(ends, baseline=4.0)).startswith("Pre-LN")
