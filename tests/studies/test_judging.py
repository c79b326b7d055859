"""What decides verdicts: closed forms for the fits, and verdicts that turn with the numbers."""

import math

import numpy as np
import pytest

from normscope.measure import Estimate, t_beyond, t_quantile
from normscope_studies.engine.claims import judged
from normscope_studies.engine.estimates import (
    bootstrap,
    clustered_proportion,
    estimate,
    exponent,
    proportion,
    slopes,
    with_interval,
)
from normscope_studies.engine.judging import (
    Verdict,
    all_hold,
    answers,
    between,
    by_place,
    by_setting,
    conditions_of,
    holm,
    learned,
    lies_within,
    tally,
    verdict_of,
    verdict_of_a_bound,
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
    for columns, expected in (
        ([near, near], True),
        ([near, far], False),
        ([near, wide], None),
        ([wide, far], False),
    ):
        assert lies_within(estimate(np.transpose(columns)), 1.0, 0.1) is expected


@pytest.mark.parametrize(
    ("holds", "verdict", "conditions"),
    [
        ({"a": True, "b": True}, Verdict.REPRODUCED, ""),
        ({"a": False, "b": False}, Verdict.CONTRADICTED, ""),
        ({"a": None, "b": None}, Verdict.UNDECIDED, ""),
        ({"a": True, "b": False, "c": True}, Verdict.UNDER_CONDITIONS, "a and c; not b"),
        ({"a": True, "b": True, "c": None}, Verdict.UNDER_CONDITIONS, "a and b; undecided: c"),
        # Half of them is no majority, and as many for as against leans to neither side.
        ({"a": True, "b": None}, Verdict.UNDECIDED, "a; undecided: b"),
        ({"a": True, "b": None, "c": False}, Verdict.UNDECIDED, "a; not c; undecided: b"),
        ({"a": True, "b": False}, Verdict.UNDECIDED, "a; not b"),
        # Nothing for and something against is never undecided, whatever is open.
        ({"a": None, "b": False}, Verdict.CONTRADICTED, "not b; undecided: a"),
        (
            {"a": None, "b": False, "c": None, "d": None},
            Verdict.CONTRADICTED,
            "not b; undecided: a, c and d",
        ),
        ({"a": True, "b": False, "c": False}, Verdict.CONTRADICTED, "not b and c; but a"),
    ],
)
def test_the_verdict_follows_from_where_a_claim_holds(holds, verdict, conditions):
    claim = judged(**CLAIM, holds=holds)
    assert (claim.verdict, claim.conditions, claim.found) == (verdict, conditions, "Numbers.")


def test_too_few_seeds_are_undecided():
    """0.542 ± 0.446 against 0.5 once read as contradicted."""
    found = estimate([0.506, 0.577])
    assert with_interval(found) == "0.541 ± 0.451"
    assert verdict_of({"": lies_within(found, 0.5, 0.1)}) is Verdict.UNDECIDED


def test_one_seed_has_no_interval_and_decides_nothing():
    assert between(estimate([0.5]), 0.0, 1.0) is None


def test_a_family_is_judged_as_strictly_as_it_is_large() -> None:
    """Levels of 0.01, 0.02, 0.03 and 0.04 of four: the first stands at 0.05 / 4, the second at 0.05
    / 3 no more.
    """

    def at_level(level: float, mean: float = 1.0) -> Estimate:
        return Estimate(
            count=5,
            mean=np.asarray(mean),
            deviation=np.asarray(abs(mean) * math.sqrt(5) / t_quantile(1 - level, 4)),
            half_width=np.asarray(math.nan),
        )

    family = {
        name: (at_level(level), 0.0, math.inf)
        for name, level in zip("abcd", (0.01, 0.02, 0.03, 0.04), strict=True)
    }
    assert holm(family) == {"a": True, "b": None, "c": None, "d": None}
    assert holm({name: family[name] for name in "bc"}) == {"b": True, "c": True}
    # Against the claim as for it, and between two bounds by the nearer one.
    assert holm({"a": (at_level(0.01, -1.0), 0.0, math.inf)}) == {"a": False}
    assert holm({"a": (at_level(0.04), -5.0, 2.0)}) == {"a": True}
    assert holm({"a": (at_level(0.06), -5.0, 2.0)}) == {"a": None}


@pytest.mark.parametrize(
    "seeds", [[0.5, 0.51, 0.49], [0.5, 0.9, 0.2], [-0.5, -0.51, -0.49], [0.5], [0.5, 0.5]]
)
def test_a_family_of_one_is_judged_by_its_interval(seeds: list[float]) -> None:
    found = estimate(seeds)
    for bounds in ((0.0, math.inf), (0.4, 0.6), (-math.inf, 0.45), (0.5, 0.505)):
        assert holm({"": (found, *bounds)})[""] is between(found, *bounds), bounds


def test_a_training_has_learned_that_ends_well_below_the_baseline() -> None:
    assert [learned(nats, 5.957) for nats in (4.0, 5.906, 5.908, 5.957, 6.1, math.inf)] == [
        True,
        True,
        *[False] * 4,
    ]


def test_the_share_beyond_t_is_that_of_the_table() -> None:
    """Fisher's table: 12.706, 4.303, 2.776 and 2.576 leave 5, 5, 5 and 1 %."""
    for t, degrees, share in (
        (12.7062, 1, 0.05),
        (4.30265, 2, 0.05),
        (2.77645, 4, 0.05),
        (2.5758, 10**6, 0.01),
    ):
        assert t_beyond(t, degrees) == pytest.approx(share, rel=1e-3)


def test_an_interval_on_the_edge_lies_inside():
    assert answers([0.5, 0.4, 0.6], [1.0, 1.0, 1.0], 0.5, 1.0) == [True, None, True]
    assert answers(0.0, 0.4, 0.5, 1.0) == [False]
    assert between(estimate([2.0, 2.0]), greatest=2.0) is True
    assert between(estimate([2.0, 2.0]), least=2.1) is False


def test_places_of_one_answer_are_named_together():
    assert by_place([True] * 3, "layer") == {"every layer": True}
    found = by_place([False, False, False, None, True, True, False], "layer")
    assert found == {"layers 1 to 3 and 7": False, "layer 4": None, "layers 5 and 6": True}
    assert conditions_of(found) == "not layers 1 to 3 and 7; but layers 5 and 6; undecided: layer 4"
    assert by_place([True, None], "depth", first=0) == {"depth 0": True, "depth 1": None}


def test_settings_that_are_named_together_each_count():
    found = by_place([False, False, *[True] * 3], "layer")
    assert verdict_of(found) is Verdict.UNDER_CONDITIONS
    assert verdict_of(by_place([False, False, False, True], "layer")) is Verdict.CONTRADICTED
    by_depth = by_setting(
        {("a", 2): True, ("a", 4): True, ("a", 8): True, ("b", 2): False}, "blocks"
    )
    assert (verdict_of(by_depth), conditions_of(by_depth)) == (Verdict.UNDER_CONDITIONS, "a; not b")


def test_many_settings_are_counted_and_exceptions_named():
    found = {**{str(i): True for i in range(30)}, "Mix-LN": None, "LNS": False}
    assert conditions_of(found) == "30 of 32; not LNS; undecided: Mix-LN"


def test_the_interval_of_a_proportion():
    """Agresti and Coull 1998, table 1's neighbours: Wilson's interval of 0 of 10 is 0 to 0.278, of
    32 of 35 0.776 to
    0.970."""
    assert proportion(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert proportion(32, 35) == pytest.approx((0.7762, 0.9704), abs=1e-4)
    assert proportion(0, 0) == (0.0, 1.0)


def test_cases_of_a_family_count_for_less_than_as_many_that_stand_alone() -> None:
    """Each case its own family: Wilson's with t of n - 1. Families that agree within: as if each
    were one case.
    """
    alone = clustered_proportion([True] * 45 + [False] * 15, range(60))
    assert alone == pytest.approx(proportion(45, 60), abs=0.004)
    # Six families of ten that agree within are five cases: Wilson's ends lie t standard errors from
    # the share.
    families = [family for family in "abcdef" for _ in range(10)]
    together = clustered_proportion([family not in "ab" for family in families], families)
    for end in together:
        assert (2 / 3 - end) ** 2 == pytest.approx(2.5706**2 * end * (1 - end) / 5, rel=1e-3)
    # All of them: as many cases as families, and t of 5 degrees of freedom is 2.571.
    low, high = clustered_proportion([True] * 60, families)
    assert (low, high) == pytest.approx((6 / (6 + 2.5706**2), 1.0), rel=1e-4)
    assert clustered_proportion([True, False], ["a", "a"]) == (0.0, 1.0)


def test_verdicts_have_one_order_and_a_tone_each():
    assert {str(verdict): str(verdict.tone) for verdict in Verdict} == {
        "reproduced": "good",
        "reproduced under conditions": "mixed",
        "reproduced in part": "mixed",
        "held, but vacuous": "mixed",
        "undecided": "plain",
        "too small to tell": "plain",
        "contradicted": "bad",
    }
    found = [Verdict.CONTRADICTED, Verdict.UNDECIDED, Verdict.REPRODUCED, Verdict.UNDECIDED]
    assert tally(found) == "1 reproduced, 2 undecided, 1 contradicted"
    every = tally(reversed(Verdict))
    assert every == ", ".join(f"1 {verdict}" for verdict in Verdict)
    assert tally([]) == ""


def test_a_claim_that_was_looked_at_nowhere_has_no_verdict():
    with pytest.raises(ValueError, match="at least one setting"):
        judged(**CLAIM, holds={})


def test_depths_that_agree_are_one_setting():
    holds = {("a", 2): True, ("a", 4): True, ("b", 2): True, ("b", 4): False, ("b", 8): True}
    assert by_setting(holds, "blocks") == {
        "a": True,
        "b of 2 and 8 blocks": True,
        "b of 4 blocks": False,
    }


def test_one_that_does_not_hold_outweighs_those_that_cannot_tell():
    assert [all_hold(a) for a in ([True, True], [True, None], [None, False, True])] == [
        True,
        None,
        False,
    ]


@pytest.mark.parametrize(
    ("slack", "verdict"),
    [(1.0, Verdict.REPRODUCED), (99.0, Verdict.REPRODUCED), (155.0, Verdict.VACUOUS)],
)
def test_a_bound_far_from_what_it_bounds_is_held_and_vacuous(
    slack: float, verdict: Verdict
) -> None:
    assert verdict_of_a_bound({"a": True}, slack) is verdict
    # One that does not hold is never vacuous.
    assert verdict_of_a_bound({"a": False}, slack) is Verdict.CONTRADICTED
    assert verdict_of_a_bound({"a": None}, slack) is Verdict.UNDECIDED


def test_a_bootstrap_has_the_percentiles_of_its_resamples():
    """Of a mean of many, those of the normal distribution; its ends come with the seed."""
    values = np.random.default_rng(2).normal(3.0, 2.0, size=400).tolist()
    whole, low, high = bootstrap(values, np.mean)
    half = 1.96 * np.std(values) / 20
    assert whole == np.mean(values)
    assert (low, high) == pytest.approx((whole - half, whole + half), abs=0.1 * half)
    assert bootstrap(values, np.mean) == (whole, low, high) != bootstrap(values, np.mean, seed=1)


def test_a_bootstrap_without_resamples_to_judge_by_has_no_interval():
    """Of one item; and of a value that is missing in more than one resample of twenty."""
    assert np.isnan(bootstrap([1.0], np.mean)[1:]).all()
    items = [1.0, 2.0, 3.0, 4.0]
    whole, *ends = bootstrap(items, lambda some: max(some) if 4.0 in some else math.nan)
    assert whole == 4.0
    assert np.isnan(ends).all()
    # Of forty items one lacks both of two in (38/40)^40 of all resamples, an eighth; all of six in
    # two of a thousand, which are left out.
    many = list(range(40))
    missing = bootstrap(many, lambda some: 1.0 if min(some) < 2 else math.nan)
    rarely = bootstrap(many, lambda some: 1.0 if min(some) < 6 else math.nan)
    assert np.isnan(missing[1:]).all()
    assert rarely == (1.0, 1.0, 1.0)
