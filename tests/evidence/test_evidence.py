"""What decides verdicts: closed forms for the fits, and verdicts that turn with the numbers."""

import math

import numpy as np
import pytest

from normscope.evidence.estimates import estimate, exponent, pooled_exponent, proportion, slopes, with_interval
from normscope.evidence.judging import (
    Verdict,
    all_hold,
    answers,
    between,
    by_place,
    by_setting,
    conditions_of,
    lies_within,
    tally,
    verdict_of,
)
from normscope_studies.engine.claims import judged

CLAIM = {"name": "name", "statement": "stated", "source": "somewhere", "found": "Numbers."}


def test_a_power_law_has_its_exponent_in_every_seed():
    x = np.array([2.0, 3.0, 7.0, 30.0])
    found = exponent(x, [2 * x**0.5, 9 * x**0.5])
    assert found.mean == pytest.approx(0.5, rel=1e-12)
    assert found.half_width == pytest.approx(0, abs=1e-10)


def test_an_exponential_has_its_slope():
    blocks = np.arange(1, 9)
    np.testing.assert_allclose(
        slopes(blocks, [np.exp(-0.2 * blocks), 3 * np.exp(0.1 * blocks)]), [-0.2, 0.1], rtol=1e-12
    )


def test_the_interval_of_an_exponent_is_that_of_the_seeds_own():
    """Slopes 0.4 and 0.6: mean 0.5, deviation 0.2/√2, and t = 12.706 for one degree of freedom."""
    x = np.array([1.0, 10.0])
    found = exponent(x, [x**0.4, x**0.6])
    assert found.mean == pytest.approx(0.5)
    assert found.half_width == pytest.approx(12.7062 * 0.1, rel=1e-4)
    assert with_interval(found) == "0.500 ± 1.271"


def test_what_rounds_to_zero_has_no_sign():
    assert with_interval(estimate([-1e-4, -1e-4])) == "0.000 ± 0.000"


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [([0.99, 1.0, 1.01], True), ([1.19, 1.2, 1.21], False), ([0.5, 1.0, 1.5], None)],
)
def test_an_interval_lies_within_or_outside_or_is_too_wide_to_tell(seeds, expected):
    assert lies_within(estimate(seeds), 1.0, 0.1) is expected


def test_all_values_must_lie_within_and_one_outside_is_enough():
    near, far, wide = [0.99, 1.0, 1.01], [1.19, 1.2, 1.21], [0.5, 1.0, 1.5]
    for columns, expected in (([near, near], True), ([near, far], False), ([near, wide], None), ([wide, far], False)):
        assert lies_within(estimate(np.transpose(columns)), 1.0, 0.1) is expected


@pytest.mark.parametrize(
    ("holds", "verdict", "conditions"),
    [
        ({"a": True, "b": True}, Verdict.REPRODUCED, ""),
        ({"a": False, "b": False}, Verdict.NOT_REPRODUCED, ""),
        ({"a": None, "b": None}, Verdict.UNDECIDED, ""),
        ({"a": True, "b": False, "c": True}, Verdict.UNDER_CONDITIONS, "a and c; not b"),
        ({"a": True, "b": None}, Verdict.UNDER_CONDITIONS, "a; undecided: b"),
        ({"a": True, "b": None, "c": False}, Verdict.UNDER_CONDITIONS, "a; not c; undecided: b"),
        ({"a": None, "b": False}, Verdict.UNDECIDED, "not b; undecided: a"),
    ],
)
def test_the_verdict_follows_from_where_a_claim_holds(holds, verdict, conditions):
    claim = judged(**CLAIM, holds=holds)
    assert (claim.verdict, claim.conditions, claim.found) == (verdict, conditions, "Numbers.")


def test_too_few_seeds_are_undecided():
    """0.542 ± 0.446 against 0.5 once read as not reproduced."""
    found = estimate([0.506, 0.577])
    assert with_interval(found) == "0.541 ± 0.451"
    assert verdict_of({"": lies_within(found, 0.5, 0.1)}) is Verdict.UNDECIDED


def test_one_seed_has_no_interval_and_decides_nothing():
    assert between(estimate([0.5]), 0.0, 1.0) is None


def test_an_interval_on_the_edge_lies_inside():
    assert answers([0.5, 0.4, 0.6], [1.0, 1.0, 1.0], 0.5, 1.0) == [True, None, True]
    assert answers(0.0, 0.4, 0.5, 1.0) == [False]
    assert between(estimate([2.0, 2.0]), greatest=2.0) is True
    assert between(estimate([2.0, 2.0]), least=2.1) is False


def test_places_of_one_answer_are_named_together():
    assert by_place([True] * 3, "layer") == {"every layer": True}
    found = by_place([False, False, False, None, True, True, False], "layer")
    assert found == {"layers 1 to 3 and 7": False, "layer 4": None, "layers 5 and 6": True}
    assert conditions_of(found) == "layers 5 and 6; not layers 1 to 3 and 7; undecided: layer 4"
    assert by_place([True, None], "depth", first=0) == {"depth 0": True, "depth 1": None}


def test_many_settings_are_counted_and_exceptions_named():
    found = {**{str(i): True for i in range(30)}, "Mix-LN": None, "LNS": False}
    assert conditions_of(found) == "30 of 32; not LNS; undecided: Mix-LN"


def test_the_interval_of_a_proportion():
    """Agresti and Coull 1998, table 1's neighbours: Wilson's interval of 0 of 10 is 0 to 0.278, of 32 of 35 0.776 to
    0.970."""
    assert proportion(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert proportion(32, 35) == pytest.approx((0.7762, 0.9704), abs=1e-4)
    assert proportion(0, 0) == (0.0, 1.0)


def test_verdicts_have_one_order_and_a_tone_each():
    assert [verdict.tone for verdict in Verdict] == ["good", "mixed", "plain", "bad"]
    found = [Verdict.NOT_REPRODUCED, Verdict.UNDECIDED, Verdict.REPRODUCED, Verdict.UNDECIDED]
    assert tally(found) == "1 reproduced, 2 undecided, 1 not reproduced"
    assert tally([]) == ""


def test_a_claim_that_was_looked_at_nowhere_has_no_verdict():
    with pytest.raises(ValueError, match="at least one setting"):
        judged(**CLAIM, holds={})


def test_depths_that_agree_are_one_setting():
    holds = {("a", 2): True, ("a", 4): True, ("b", 2): True, ("b", 4): False, ("b", 8): True}
    assert by_setting(holds, "blocks") == {"a": True, "b of 2 and 8 blocks": True, "b of 4 blocks": False}


def test_one_that_does_not_hold_outweighs_those_that_cannot_tell():
    assert [all_hold(a) for a in ([True, True], [True, None], [None, False, True])] == [True, None, False]


def test_a_pooled_exponent_is_that_of_a_regression_with_its_standard_error() -> None:
    rng = np.random.default_rng(3)
    x = np.array([32.0, 64, 96, 128])
    for seeds in (1, 3):
        y = np.exp(0.7 - 0.5 * np.log(x) + 0.1 * rng.standard_normal((seeds, 4)))
        found = pooled_exponent(x, y)
        matrix = np.stack([np.ones(4 * seeds), np.tile(np.log(x), seeds)], 1)
        solution, (left,), _, _ = np.linalg.lstsq(matrix, np.log(y).ravel(), rcond=None)
        error = math.sqrt(left / (4 * seeds - 2) * np.linalg.inv(matrix.T @ matrix)[1, 1])
        assert float(found.mean) == pytest.approx(solution[1], rel=1e-9)
        quantile = {2: 4.302652730, 10: 2.228138852}[4 * seeds - 2]
        assert float(found.half_width) == pytest.approx(quantile * error, rel=1e-6)
    assert math.isnan(float(pooled_exponent([1.0, 2.0], [[1.0, 2.0]]).half_width))
