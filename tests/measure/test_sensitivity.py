"""Learning-rate sensitivity, beside closed forms and loops that were not written the same way."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from normscope.measure import counted_losses, lr_sensitivity

LOSSES = st.floats(0, 20) | st.sampled_from([math.nan, math.inf])


def by_hand(losses, initial):
    """As the source has it, for the mean curve of several seeds: a loop over rates and one over
    seeds.
    """
    curve = []
    for rate in range(len(losses[0])):
        total = 0.0
        for row, start in zip(losses, initial, strict=True):
            loss = row[rate]
            total += start if not math.isfinite(loss) or loss > start else loss
        curve.append(total / len(losses))
    return sum(loss - min(curve) for loss in curve) / len(curve)


@given(
    st.integers(1, 4).flatmap(
        lambda s: st.tuples(
            arrays(float, (s, 5), elements=LOSSES), arrays(float, s, elements=st.floats(1, 12))
        )
    )
)
def test_it_is_the_mean_deviation_from_the_best_rate(drawn):
    losses, initial = drawn
    found = lr_sensitivity(losses, initial, draws=10)
    assert found.value == pytest.approx(by_hand(losses.tolist(), initial.tolist()), abs=1e-12)
    assert found.seeds == len(initial)


def test_a_loss_that_is_a_parabola_in_the_log_rate_has_its_mean_square():
    # ℓ = 2 + (log10 rate − m)²: at places −k … k about m the mean deviation is k (k + 1) / 3, times
    # the step's square.
    step, k = 0.5, 3
    places = step * np.arange(-k, k + 1)
    found = lr_sensitivity([2 + places**2], [100.0])
    assert found.value == pytest.approx(step**2 * k * (k + 1) / 3, rel=1e-14)
    assert found.best_rate == k


def test_a_flat_curve_has_none_and_units_scale_with_it():
    assert lr_sensitivity([[3.0, 3.0, 3.0]], [9.0]).value == 0
    nats = [[3.0, 2.0, 5.0], [3.5, 2.0, math.nan]]
    in_bits = lr_sensitivity(np.asarray(nats) / math.log(2), np.asarray([9.0, 8.0]) / math.log(2))
    assert in_bits.value == pytest.approx(
        lr_sensitivity(nats, [9.0, 8.0]).value / math.log(2), rel=1e-14
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 9.5, 1e30])
def test_what_is_not_finite_or_worse_counts_as_the_loss_at_initialisation(bad):
    found = lr_sensitivity([[2.0, bad]], [9.0])
    assert found.value == pytest.approx((0 + 7) / 2)
    assert found.replaced == 1
    assert counted_losses([[2.0, bad]], [9.0]).tolist() == [[2.0, 9.0]]


def test_where_no_run_gets_below_its_start_nothing_depends_on_the_rate():
    found = lr_sensitivity([[math.nan, 10.0], [math.inf, 11.0]], [9.0, 8.0])
    assert (found.value, found.low, found.high, found.replaced) == (0, 0, 0, 4)


def test_a_run_that_ends_just_where_it_started_is_not_replaced():
    assert lr_sensitivity([[2.0, 9.0]], [9.0]).replaced == 0


def test_the_interval_is_that_of_all_resamples_of_the_seeds():
    generator = np.random.default_rng(3)
    losses, initial = generator.uniform(1, 8, size=(3, 4)), np.full(3, 9.0)
    every = [
        by_hand([losses[i].tolist() for i in chosen], [9.0] * 3)
        for chosen in itertools.product(range(3), repeat=3)
    ]
    found = lr_sensitivity(losses, initial, draws=50_000, confidence=0.95)
    # The least and the greatest are one or more of 27 resamples, over 2.5 %: the quantiles are
    # these very values.
    assert (found.low, found.high) == pytest.approx((min(every), max(every)), rel=1e-12)
    assert found.low <= found.value <= found.high


def test_the_interval_of_many_seeds_is_near_the_normal_one():
    # Two rates, the first always the better one: the sensitivity is half the mean difference.
    generator = np.random.default_rng(5)
    worse = generator.normal(4.0, 0.5, size=200)
    found = lr_sensitivity(np.stack([np.full(200, 2.0), worse], axis=1), np.full(200, 99.0))
    half = 1.959964 * worse.std() / math.sqrt(200) / 2
    assert (found.low, found.high) == pytest.approx(
        (found.value - half, found.value + half), abs=0.15 * half
    )


def test_the_draws_follow_the_seed_and_one_seed_has_no_interval():
    losses, initial = np.random.default_rng(0).uniform(1, 8, size=(6, 5)), np.full(6, 9.0)
    assert lr_sensitivity(losses, initial, draws=50) == lr_sensitivity(losses, initial, draws=50)
    assert lr_sensitivity(losses, initial, draws=50) != lr_sensitivity(
        losses, initial, draws=50, seed=1
    )
    alone = lr_sensitivity(losses[:1], initial[:1])
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


@pytest.mark.parametrize(
    ("losses", "initial", "says"),
    [
        ([1.0, 2.0], [9.0], "a row for each seed"),
        ([[1.0, 2.0]], [9.0, 9.0], r"\(1, 2\) and \(2,\)"),
        (np.empty((0, 3)), [], "a row for each seed"),
        ([[1.0, 2.0]], [math.nan], "must be finite"),
    ],
)
def test_what_does_not_fit_is_refused(losses, initial, says):
    with pytest.raises(ValueError, match=says):
        lr_sensitivity(losses, initial)
    with pytest.raises(ValueError, match=says):
        counted_losses(losses, initial)


@pytest.mark.parametrize("options", [{"confidence": 1.0}, {"confidence": 0.0}, {"draws": 0}])
def test_an_interval_that_there_is_not_is_refused(options):
    with pytest.raises(ValueError, match="0 < confidence < 1"):
        lr_sensitivity([[1.0, 2.0]], [9.0], **options)
