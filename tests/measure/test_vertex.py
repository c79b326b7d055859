"""The bottom of a parabola, beside a fit of one, and the best rate by it."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from normscope.measure.vertex import bottom, lowest, rate_vertex

NUMBERS = st.floats(-5, 5)


@given(st.floats(-3, 3), st.floats(0.1, 3), st.floats(0.1, 3), NUMBERS, NUMBERS, NUMBERS)
def test_it_is_where_a_fitted_parabola_is_lowest(start, first, second, left, here, right):
    x, y = [start, start + first, start + first + second], [left, here, right]
    curvature, slope, _ = np.polyfit(x, y, 2)
    assume(curvature > 0.05)
    assert bottom(x, y) == pytest.approx(-slope / (2 * curvature), rel=1e-6, abs=1e-6)


def test_without_a_bottom_it_is_the_middle():
    assert bottom([0.0, 1.0, 3.0], [1.0, 2.0, 1.0]) == 1.0
    assert bottom([0.0, 1.0, 2.0], [3.0, 3.0, 3.0]) == 1.0


def test_a_curve_s_lowest_is_by_its_lowest_point_and_the_neighbours() -> None:
    x = [0.0, 1.0, 2.0, 3.0, 4.0]
    y = [(one - 2.3) ** 2 for one in x]
    assert lowest(x, y) == pytest.approx(2.3, abs=1e-12)
    assert lowest(x[:2], y[:2]) == 1.0
    assert lowest(x, [*y[:3], math.inf, math.inf]) == 2.0


RATES = [5e-4, 1e-3, 2e-3]


def bowl(best: float, rates: list[float]) -> list[float]:
    """Losses of a parabola over the logarithm of the rate with its bottom at `best`."""
    return [1.0 + math.log2(rate / best) ** 2 for rate in rates]


def test_the_vertex_of_three_rates_is_the_best_rate_of_a_parabola() -> None:
    found = rate_vertex(RATES, [bowl(1.2e-3, RATES)])
    assert found.rate == pytest.approx(1.2e-3, rel=1e-12)
    assert found.further is None
    assert math.isnan(found.low)
    assert math.isnan(found.high)


@pytest.mark.parametrize(("best", "further"), [(1e-4, 2.5e-4), (1e-2, 4e-3)])
def test_an_end_that_is_lowest_asks_for_another_training_beyond_it(
    best: float, further: float
) -> None:
    found = rate_vertex(RATES, [bowl(best, RATES)])
    assert found.further == pytest.approx(further, rel=1e-12)
    assert found.rate == (RATES[0] if best < 1e-3 else RATES[-1])


def test_the_interval_is_that_of_resampled_seeds() -> None:
    """Two seeds have four resamples, of which two are of one seed alone."""
    losses = [bowl(best, RATES) for best in (0.9e-3, 1.1e-3)]
    found = rate_vertex(RATES, losses)
    assert (found.low, found.high) == pytest.approx((0.9e-3, 1.1e-3), rel=1e-9)
    assert found.rate == pytest.approx(math.sqrt(0.9e-3 * 1.1e-3), rel=1e-9)
    assert found.undecided == 0.0


def test_a_run_that_diverged_is_infinite_and_bends_nothing() -> None:
    losses = [[1.0, 0.5, math.inf], [1.0, 0.5, 0.9]]
    found = rate_vertex(RATES, losses)
    assert found.rate == 1e-3
    assert found.further is None
    assert all(map(math.isfinite, (found.low, found.high)))


def test_the_share_of_resamples_with_an_end_is_told() -> None:
    losses = [bowl(best, RATES) for best in (1.0e-3, 1.9e-3)]
    found = rate_vertex(RATES, losses)
    # One of four resamples is the second seed alone, whose lowest is the end.
    assert found.undecided == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("rates", "losses"),
    [
        ([1e-3, 2e-3], [[1.0, 2.0]]),
        (RATES, [1.0, 2.0, 3.0]),
        (RATES, [[1.0, 2.0]]),
        (RATES[::-1], [[1.0, 2.0, 3.0]]),
        ([0.0, 1e-3, 2e-3], [[1.0, 2.0, 3.0]]),
    ],
)
def test_what_is_no_sweep_is_refused(rates: list[float], losses: list[object]) -> None:
    with pytest.raises(ValueError, match=r"takes three or more rates|above 0 and rise"):
        rate_vertex(rates, losses)
