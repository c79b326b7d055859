"""How tokens differ, beside what a few tokens show by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from normscope.theory.places import Differences, Differing, of_both, of_tokens

GAPS, MORE = st.floats(0, 1e6), st.floats(0, 100)
DIFFERING = st.builds(Differing, MORE, MORE, MORE)
DIFFERENCES = st.builds(Differences, GAPS, DIFFERING)


def drawn(tokens: int, width: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((tokens, width))


def test_random_tokens_differ_in_as_many_directions_as_there_are_features():
    assert of_tokens(drawn(800, 600)).narrow == pytest.approx(1.0, rel=0.02)


def test_tokens_at_equal_angles_differ_as_little_as_they_can():
    """The corners of a simplex: less their mean, all n - 1 directions have the same share."""
    assert of_tokens(np.eye(7)).narrow == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("tokens", "width"), [(2, 5), (6, 5), (9, 2)])
def test_tokens_on_a_line_differ_in_one_direction(tokens, width):
    """Σ⟨x̃, x̃'⟩² is (Σ‖x̃‖²)² there, n - 1 times the least that n tokens can have."""
    line = np.outer(drawn(tokens, 1)[:, 0], drawn(1, width)[0])
    assert of_tokens(line).narrow == pytest.approx((tokens - 2) * width / tokens, rel=1e-12)


def test_what_tokens_have_in_common_their_size_and_their_axes_do_not_matter():
    x, common = drawn(6, 4), 10 * drawn(1, 4, seed=4)
    turned, _ = np.linalg.qr(drawn(4, 4, seed=5))
    for same in (x + common, 7 * x, x @ turned):
        assert of_tokens(same).narrow == pytest.approx(of_tokens(x).narrow, rel=1e-9)


@given(left=DIFFERENCES, right=DIFFERENCES)
def test_a_mean_of_two_lies_between_them_whichever_comes_first(left, right):
    found = of_both(left, right)
    assert found == pytest.approx(of_both(right, left), rel=1e-9, abs=1e-9)
    for mean, one, other in zip(found, left.differing, right.differing, strict=True):
        assert min(one, other) - 1e-9 <= mean <= max(one, other) + 1e-9


def test_a_mean_is_weighed_by_gaps():
    one, other = Differing(2.0, 1.0, 0.5), Differing(4.0, 3.0, 0.0)
    assert of_both(Differences(3.0, one), Differences(1.0, other)) == pytest.approx(
        Differing(2.5, 1.5, 0.375)
    )
    assert of_both(Differences(0.0, one), Differences(0.0, other)) == pytest.approx(
        Differing(3.0, 2.0, 0.25)
    )
    assert math.isclose(of_both(Differences(0.0, one), Differences(2.0, other)).narrow, 4.0)
