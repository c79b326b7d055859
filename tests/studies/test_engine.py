"""What studies are declared with: claims judged and worded, checks of settings, tables and figures
from values.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from normscope.measure import Estimate
from normscope_studies.engine import checks
from normscope_studies.engine.claims import (
    around,
    beside_prediction,
    claim,
    foretold,
    listed,
    mean_over_draws,
    shown_span,
    spread_of,
)
from normscope_studies.engine.estimates import estimate, with_interval
from normscope_studies.engine.page import Claim, curves, line, scatter, table
from normscope_studies.engine.pieces import Pieces

NEAR, ABOVE, BELOW = (estimate([mean - 0.01, mean, mean + 0.01]) for mean in (0.0, 0.5, -0.5))


def claimed(holds: dict[str, Estimate | bool | None], **bounds: float | dict[str, float]) -> Claim:
    return claim(
        "name", "statement", source="source", value="the loss, in nats", holds=holds, **bounds
    )  # type: ignore[arg-type]


def test_a_claim_is_judged_and_worded_from_its_values():
    made = claimed({"toy": ABOVE, "text": BELOW, "speech": NEAR}, least=0.0)
    assert (made.verdict, made.conditions) == (
        "undecided",
        "toy; not text; undecided: speech",
    )
    assert (
        made.found
        == "the loss, in nats: toy: 0.500 ± 0.025; text: −0.500 ± 0.025; speech: 0.000 ± 0.025"
    )
    assert claimed({"toy": ABOVE, "text": ABOVE}, least=0.0, greatest=1.0).verdict == "reproduced"
    assert claimed({"toy": ABOVE}, greatest=0.0).verdict == "contradicted"


def test_a_bound_may_be_each_setting_s_own_and_an_answer_stands_beside_values():
    made = claimed({"toy": ABOVE, "text": BELOW, "speech": True}, least={"toy": 0.4, "text": -0.6})
    assert made.verdict == "reproduced"
    assert made.found == "the loss, in nats: toy: 0.500 ± 0.025; text: −0.500 ± 0.025"
    assert claimed({"toy": None}).found == "the loss, in nats"
    with pytest.raises(ValueError, match="at least one setting"):
        claimed({})


def test_a_claim_of_a_value_has_bounds_on_both_sides_of_it():
    assert around(0.5, 0.25) == {"least": 0.25, "greatest": 0.75}
    assert around({"toy": 1.0, "text": 2.0}, 0.5) == {
        "least": {"toy": 0.5, "text": 1.5},
        "greatest": {"toy": 1.5, "text": 2.5},
    }
    assert (
        claimed({"toy": ABOVE, "text": BELOW}, **around({"toy": 0.5, "text": 0.5}, 0.1)).conditions
        == "toy; not text"
    )


def test_an_estimate_of_several_places_is_written_from_its_least_to_its_greatest():
    assert shown_span(estimate([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])) == "1.000 to 3.000"


def test_what_was_foretold_is_judged_curve_by_curve():
    curves = {
        name: [mean_over_draws(off * (1 + 1e-5 * np.array([[1.0, 0.0], [0.0, 1.0]])), [1.0, 1.0])]
        for name, off in {"a": 1.01, "b": 1.2}.items()
    }
    made = foretold(
        name="n",
        statement="s",
        source="t",
        of="2 stacks",
        spread=spread_of(curves, limit_percent=5.0),
    )
    assert (made.verdict, made.conditions) == ("undecided", "a; not b")
    assert made.found.startswith(
        "2 stacks: at most 20.00 % off (b, l = 0; standard error 0.00 %), 14.16 % root mean"
    )
    assert made.found.endswith("; 1 of 2 surely within the limit")


def test_who_watches_learns_how_many_are_done(tmp_path):
    told = []
    pieces = Pieces(tmp_path, watch=lambda *now: told.append(now))
    assert list(pieces.each("seeds", "ab")) == ["a", "b"]
    assert told == [("seeds", 0, 2), ("seeds", 1, 2), ("seeds", 2, 2)]


def test_very_many_values_are_told_by_their_ends():
    values = {f"seed {number}": estimate([number - 0.1, number + 0.1]) for number in range(13)}
    two = partial(with_interval, decimals=0)
    assert listed(values, two) == "from 0 ± 1, seed 0, to 12 ± 1, seed 12"
    assert listed({"a": NEAR, "b": ABOVE}, two) == "a: 0 ± 0; b: 0 ± 0"


def test_more_sentences_follow_and_a_value_is_written_as_asked():
    made = claim(
        "name",
        "statement",
        source="source",
        value="the factor",
        holds={"toy": estimate([math.log(2.0)])},
        shown=lambda one: f"{math.exp(float(one.mean)):.1f}",
        beside="The baseline is 5.",
    )
    assert made.found == "the factor: toy: 2.0. The baseline is 5."
    assert made.verdict == "undecided"


def test_a_table_has_a_row_a_record_and_writes_estimates_with_their_intervals():
    made = table("Ends", ["toy"], [("text", str.upper), ("loss", lambda _: ABOVE), ("count", len)])
    assert (made.columns, made.rows) == (["text", "loss", "count"], [["TOY", "0.500 ± 0.025", 3]])


def test_a_prediction_is_drawn_beside_what_was_measured():
    """Of two draws that differ by 1 the standard error of the mean is 1/2."""
    seen, told = beside_prediction(
        "a", 2, mean_over_draws([[0.5, 3.0], [1.5, 3.0]], [2.0, 4.0]), first=1
    )
    assert (seen.label, seen.kind, seen.x, seen.low) == (
        "a, measured",
        "measured",
        [1.0, 2.0],
        [0.0, 3.0],
    )
    assert (seen.y, seen.high) == ([1.0, 3.0], [2.0, 3.0])
    assert (told.label, told.kind, told.hue, told.y) == ("a, predicted", "predicted", 2, [2.0, 4.0])


def test_curves_are_means_in_the_range_of_the_seeds_and_others_stand_before_them():
    theory = line("theory", "claimed", -1, [1.0, 2.0], 3.0)
    panel = curves(
        "Panel",
        {"a": [[1.0, 2.0], [3.0, 6.0]]},
        x=[1.0, 2.0],
        xlabel="x",
        ylabel="y",
        beside=[theory],
    )
    first, second = panel.series
    assert (first.label, first.y) == ("theory", [3.0, 3.0])
    assert (second.y, second.low, second.high, second.hue) == (
        [2.0, 4.0],
        [1.0, 2.0],
        [3.0, 6.0],
        0,
    )


def test_points_have_the_hue_of_their_label():
    panel = scatter(
        "Panel", {"b": [(1.0, 2.0)], "a": [(3.0, 4.0)]}, xlabel="x", ylabel="y", log_y=True
    )
    assert [(one.kind, one.hue, one.x, one.y) for one in panel.series] == [
        ("points", 0, [1.0], [2.0]),
        ("points", 1, [3.0], [4.0]),
    ]
    assert panel.log_y


@dataclass
class Settings:
    rates: tuple[float, ...] = (1.0, 2.0)
    count: int = 3
    placements: tuple[str, ...] = ("pre-ln",)


@pytest.mark.parametrize(
    ("check", "settings", "message"),
    [
        (
            lambda config: checks.check_different(config, "rates"),
            Settings(rates=(1.0, 1.0)),
            "one or more different values",
        ),
        (
            lambda config: checks.check_rising(config, "rates"),
            Settings(rates=(2.0, 1.0)),
            "rates must be positive and rise",
        ),
        (
            lambda config: checks.check_least(config, count=4),
            Settings(),
            "count must be at least 4, got 3",
        ),
        (
            lambda config: checks.check_positive(config, "count"),
            Settings(count=0),
            "count must be positive, got 0",
        ),
        (
            lambda config: checks.check_positive(config, "rates"),
            Settings(rates=(1.0, -1.0)),
            "rates must be positive",
        ),
        (
            lambda config: checks.check_choices(config, "placements", ("post-ln",)),
            Settings(),
            "placements: pre-ln is not one; choose from post-ln",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(check, settings, message):
    with pytest.raises(ValueError, match=message):
        check(settings)
