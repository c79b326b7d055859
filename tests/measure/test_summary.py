"""Running means against numpy on all values, and Student's t against printed tables and closed
forms.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from normscope.measure import Summary, t_quantile
from normscope.measure.statistics import _EXACT_UP_TO, _expanded

numbers = st.floats(-1e6, 1e6)

TABLE = {
    # Abramowitz & Stegun 1964, table 26.10 (two-sided), by degrees: 0.90, 0.95, 0.99.
    1: (6.314, 12.706, 63.657),
    2: (2.920, 4.303, 9.925),
    3: (2.353, 3.182, 5.841),
    4: (2.132, 2.776, 4.604),
    5: (2.015, 2.571, 4.032),
    9: (1.833, 2.262, 3.250),
    10: (1.812, 2.228, 3.169),
    29: (1.699, 2.045, 2.756),
    30: (1.697, 2.042, 2.750),
    60: (1.671, 2.000, 2.660),
    120: (1.658, 1.980, 2.617),
    10**9: (1.645, 1.960, 2.576),
}


@pytest.mark.parametrize("degrees", TABLE)
def test_printed_quantiles(degrees):
    found = [t_quantile(confidence, degrees) for confidence in (0.90, 0.95, 0.99)]
    assert [round(t, 3) for t in found] == list(TABLE[degrees])


@pytest.mark.parametrize("confidence", [1e-6, 0.1, 0.5, 0.95, 0.999, 0.999999])
def test_quantiles_in_closed_form(confidence):
    """One, two and four degrees: tan, √(2c²/(1-c²)), and Shaw 2006, eq. (38)."""
    c = confidence
    assert t_quantile(c, 1) == pytest.approx(math.tan(math.pi * c / 2), rel=1e-9)
    assert t_quantile(c, 2) == pytest.approx(math.sqrt(2 * c * c / (1 - c * c)), rel=1e-9)
    alpha = (1 - c) * (1 + c)
    four = math.sqrt(4 * (math.cos(math.acos(math.sqrt(alpha)) / 3) / math.sqrt(alpha)) - 4)
    assert t_quantile(c, 4) == pytest.approx(four, rel=1e-6 if c > 1e-3 else 1e-2)


@pytest.mark.parametrize(
    ("degrees", "confidence"), [(3, 0.8), (8, 0.95), (33, 0.99), (200, 0.95), (201, 0.95)]
)
def test_the_density_between_adds_up_to_the_confidence(degrees, confidence):
    t = t_quantile(confidence, degrees)
    x = np.linspace(-t, t, 20001)
    log_scale = (
        math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    )
    density = np.exp(log_scale - (degrees + 1) / 2 * np.log1p(x * x / degrees))
    assert np.trapezoid(density, x) == pytest.approx(confidence, abs=1e-8)


def test_the_expansion_meets_the_sum():
    for z, confidence in (
        (1.6448536269514722, 0.9),
        (1.959963984540054, 0.95),
        (3.2905267314919255, 0.999),
    ):
        assert _expanded(z, _EXACT_UP_TO) == pytest.approx(
            t_quantile(confidence, _EXACT_UP_TO), abs=1e-9
        )


@pytest.mark.parametrize(
    ("confidence", "degrees"), [(0.0, 3), (1.0, 3), (-0.5, 3), (0.95, 0), (math.nan, 3)]
)
def test_quantiles_that_do_not_exist(confidence, degrees):
    with pytest.raises(ValueError, match="0 < confidence < 1"):
        t_quantile(confidence, degrees)


def test_against_numpy():
    values = np.random.default_rng(0).normal(5, 2, (6, 3))
    summary = Summary()
    for row in values:
        summary.add({"q": row, "loss": float(row[0])})
    found = summary.estimates()["q"]
    assert found.count == 6
    np.testing.assert_allclose(found.mean, values.mean(0), rtol=1e-13)
    np.testing.assert_allclose(found.deviation, values.std(0, ddof=1), rtol=1e-12)
    half = 2.570581835636314 * values.std(0, ddof=1) / math.sqrt(6)
    np.testing.assert_allclose(found.low, values.mean(0) - half, rtol=1e-12)
    np.testing.assert_allclose(found.high, values.mean(0) + half, rtol=1e-12)
    assert float(summary.estimates()["loss"].mean) == pytest.approx(values[:, 0].mean())


def test_an_interval_holds_the_mean_as_often_as_it_says():
    generator = np.random.default_rng(1)
    summary = Summary()
    for _ in range(4):
        summary.add({"x": generator.normal(3, 1, 20000)})
    found = summary.estimates(0.9)["x"]
    assert np.mean((found.low <= 3) & (found.high >= 3)) == pytest.approx(
        0.9, abs=0.01
    )  # 4.7 standard errors


def test_no_digits_are_lost_far_from_zero():
    """Sums of squares would leave nothing of a variance of 1 at 1e9."""
    summary = Summary()
    for value in (1e9 - 1, 1e9, 1e9 + 1):
        summary.add({"x": value})
    assert float(summary.estimates()["x"].deviation) == 1.0


@settings(max_examples=60, deadline=None)
@given(values=st.lists(numbers, min_size=2, max_size=12), data=st.data())
def test_how_values_are_split_does_not_matter(values, data):
    cut = data.draw(st.integers(0, len(values)))
    whole, first, second = Summary(), Summary(), Summary()
    for i, value in enumerate(values):
        whole.add({"x": value})
        (first if i < cut else second).add({"x": value})
    first.update(second)
    one, two = whole.estimates()["x"], first.estimates()["x"]
    scale = max(map(abs, values)) + 1e-300
    assert one.count == two.count == len(values)
    assert float(two.mean) == pytest.approx(float(one.mean), abs=1e-12 * scale)
    assert float(two.deviation) == pytest.approx(float(one.deviation), abs=1e-9 * scale)


def test_each_name_has_its_own_count():
    summary, more = Summary(), Summary()
    summary.add({"a": 1.0, "b": 2.0})
    summary.add({"a": 3.0})
    more.add({"c": [1.0, 2.0]})
    summary.update(more)
    found = summary.estimates()
    assert {name: estimate.count for name, estimate in found.items()} == {"a": 2, "b": 1, "c": 1}
    assert math.isnan(found["b"].deviation)
    assert np.isnan(found["c"].half_width).all()
    assert np.isnan(found["c"].high).all()


def test_arrays_of_the_caller_are_not_kept():
    summary, row = Summary(), np.array([1.0, 2.0])
    summary.add({"x": row})
    row += 10
    summary.add({"x": [3.0, 4.0]})
    assert summary.estimates()["x"].mean.tolist() == [2.0, 3.0]


def test_another_shape_is_refused_before_anything_is_taken_in():
    summary = Summary()
    summary.add({"x": [1.0, 2.0], "y": 1.0})
    with pytest.raises(ValueError, match=r"'x' had shape \(2,\) before, now \(3,\)"):
        summary.add({"y": 5.0, "x": [1.0, 2.0, 3.0]})
    assert summary.estimates()["y"].count == 1


def test_nan_stays():
    summary = Summary()
    for value in (1.0, math.nan, 2.0):
        summary.add({"x": value})
    assert math.isnan(summary.estimates()["x"].mean)
