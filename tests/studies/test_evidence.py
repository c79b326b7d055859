"""What decides verdicts: closed forms for the fits, and verdicts that turn with the numbers."""

import numpy as np
import pytest

from normscope.studies.protocol.evidence import (
    all_hold,
    estimate,
    exponent,
    gathered,
    joined,
    judged,
    lies_within,
    slopes,
    spread,
    told,
)

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
    assert told(found) == "0.500 ± 1.271"


def test_what_rounds_to_zero_has_no_sign():
    assert told(estimate([-1e-4, -1e-4])) == "0.000 ± 0.000"
    assert spread([0.25, -1e-4, -0.5]) == "−0.500 to 0.250"


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
    ("holds", "verdict", "conditions", "found"),
    [
        ({"a": True, "b": True}, "reproduced", "", "Numbers."),
        ({"a": False, "b": False}, "not reproduced", "", "Numbers."),
        ({"a": True, "b": False, "c": True}, "reproduced under conditions", "a and c; not b", "Numbers."),
        (
            {"a": True, "b": None},
            "reproduced under conditions",
            "a; not b",
            "Numbers. Too few seeds to tell: b.",
        ),
        ({"a": None, "b": False}, "not reproduced", "", "Numbers. Too few seeds to tell: a."),
    ],
)
def test_the_verdict_follows_from_where_a_claim_holds(holds, verdict, conditions, found):
    claim = judged(**CLAIM, holds=holds)
    assert (claim.verdict, claim.conditions, claim.found) == (verdict, conditions, found)


def test_a_claim_that_was_looked_at_nowhere_has_no_verdict():
    with pytest.raises(ValueError, match="at least one setting"):
        judged(**CLAIM, holds={})


def test_depths_that_agree_are_one_setting():
    holds = {("a", 2): True, ("a", 4): True, ("b", 2): True, ("b", 4): False, ("b", 8): True}
    assert gathered(holds, "blocks") == {"a": True, "b of 2 and 8 blocks": True, "b of 4 blocks": False}


def test_one_that_does_not_hold_outweighs_those_that_cannot_tell():
    assert [all_hold(a) for a in ([True, True], [True, None], [None, False, True])] == [True, None, False]


def test_lists_in_words():
    assert [joined(parts) for parts in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
