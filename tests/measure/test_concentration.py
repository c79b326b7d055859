"""Definition 1 on samples, against counting by hand, the theory room's discrete version and the chi-square."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from normscope.measure import BoundCounter, Point, is_bounded, recording, smallest_delta, squared_norms
from normscope_studies.theory import corrected, paper

SAMPLE = torch.tensor([0.5, 0.9, 1.0, 1.05, 1.1, 1.45])
"""Mean 1."""


@pytest.mark.parametrize(
    ("epsilon", "upper", "both"), [(0.03, 3, 5), (0.07, 2, 4), (0.2, 1, 2), (0.47, 0, 1), (0.6, 0, 0)]
)
def test_counts_by_hand(epsilon, upper, both):
    assert smallest_delta(SAMPLE, epsilon, sides="upper").outside == upper
    found = smallest_delta(SAMPLE.view(2, 3), epsilon, sides="both")
    assert (found.outside, found.count, found.delta) == (both, 6, both / 6)
    assert is_bounded(SAMPLE, epsilon=epsilon, delta=both / 6, sides="both")
    if both:
        assert not is_bounded(SAMPLE, epsilon=epsilon, delta=both / 6 - 1e-9, sides="both")


@pytest.mark.parametrize("epsilon", [0.03, 0.2, 0.47])
@pytest.mark.parametrize("delta", [0.0, 0.2, 0.4, 0.7])
def test_agrees_with_the_definition_for_finitely_many_values(epsilon, delta):
    values, weights = SAMPLE.double().tolist(), [1 / 6] * 6
    for sides, theory in (("upper", paper), ("both", corrected)):
        expected = theory.is_bounded(values, weights, epsilon=epsilon, delta=delta)
        assert is_bounded(SAMPLE, epsilon=epsilon, delta=delta, sides=sides) == expected


def test_one_side_overlooks_what_two_see():
    """Z = 1, or a million once in a thousand: bounded by Definition 1, although almost always a thousandth of EZ."""
    sample = torch.ones(1000)
    sample[0] = 1e6
    assert is_bounded(sample, epsilon=0.1, delta=0.001, sides="upper")
    assert smallest_delta(sample, 0.1, sides="both").delta == 1.0


def test_a_known_mean_replaces_the_samples():
    assert smallest_delta(SAMPLE, 0.01, sides="upper", mean=1.2).outside == 1
    assert smallest_delta(SAMPLE, 0.01, sides="both", mean=1.2).outside == 6


def test_chi_square_tails_within_the_standard_error():
    """‖Y‖² of 20,000 standard normal vectors in 64 dimensions."""
    x = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0))
    for epsilon in (0.1, 0.25, 0.5):
        lower, upper = corrected.chi_square_tails(width=64, epsilon=epsilon)
        for sides, delta in (("upper", upper), ("both", upper + lower)):
            found = smallest_delta(squared_norms(x), epsilon, sides=sides, mean=64.0)
            assert abs(found.delta - delta) < 3 * found.standard_error
            assert found.standard_error == pytest.approx(math.sqrt(delta * (1 - delta) / 20_000), rel=0.1)


def test_the_standard_error_is_never_nothing():
    none = smallest_delta(torch.ones(98), 0.1, sides="both")
    assert none.delta == 0.0
    assert none.standard_error == pytest.approx(math.sqrt(0.01 * 0.99 / 98))


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.floats(0, 10), min_size=2, max_size=20), data=st.data())
def test_how_values_are_dealt_to_batches_does_not_matter(values, data):
    cut, epsilons = data.draw(st.integers(1, len(values) - 1)), [0.1, 0.5, 2.0]
    sample = torch.tensor(values, dtype=torch.float64)
    whole, parts = BoundCounter(3.0, epsilons), BoundCounter(3.0, epsilons)
    whole.add(sample)
    parts.add(sample[:cut])
    parts.add(sample[cut:])
    for sides in ("upper", "both"):
        assert whole.bounds(sides) == parts.bounds(sides)
        alone = [smallest_delta(sample, epsilon, sides=sides, mean=3.0) for epsilon in epsilons]
        assert whole.bounds(sides) == alone
    assert parts.sample_mean == pytest.approx(whole.sample_mean, rel=1e-12, abs=1e-12)


def test_counting_a_stream_as_it_passes():
    torch.manual_seed(0)
    block, counter = torch.nn.Linear(8, 8), BoundCounter(3.0, [0.2])
    with recording({"x": Point(block)}, lambda x: counter.add(squared_norms(x))), torch.no_grad():
        outputs = [block(torch.randn(4, 5, 8)) for _ in range(3)]
    z = torch.cat(outputs).double().square().sum(-1)
    (found,) = counter.bounds("both")
    assert (found.count, found.outside) == (60, int(((z - 3).abs() > 0.6).sum()))
    assert counter.sample_mean == pytest.approx(float(z.mean()))


def test_squared_norms():
    x = torch.randn(2, 3, 4, dtype=torch.bfloat16, requires_grad=True)
    found = squared_norms(x)
    assert found.dtype == torch.float64
    assert not found.requires_grad
    torch.testing.assert_close(found, x.detach().double().square().sum(-1), rtol=1e-12, atol=0)


def test_refusals():
    for sample in (
        torch.tensor([]),
        torch.tensor([1.0, -1.0]),
        torch.tensor([1.0, math.nan]),
        torch.tensor([math.inf]),
    ):
        with pytest.raises(ValueError, match="samples"):
            smallest_delta(sample, 0.1, sides="upper")
    with pytest.raises(ValueError, match="mean must be positive"):
        smallest_delta(torch.zeros(3), 0.1, sides="upper")
    with pytest.raises(ValueError, match=r"epsilon must be positive, got 0\.0, nan"):
        BoundCounter(1.0, [0.0, 0.1, math.nan])
    with pytest.raises(ValueError, match="no values"):
        BoundCounter(1.0, [0.1]).bounds("both")
    assert math.isnan(BoundCounter(1.0, [0.1]).sample_mean)
