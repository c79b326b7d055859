"""Matrices that treat tokens alike, beside numpy's of the whole size."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from normscope.theory.attending.alike import gradient_at_values
from normscope.theory.change.tokens import (
    Alike,
    Whole,
    adjoint,
    mapped,
    of_values,
    polar,
    product,
    sandwich,
    solved,
    square_root,
    trace,
)
from normscope.theory.mixing import LinearMap, uniform

TOKENS = 5
entries = st.floats(-3, 3).map(lambda x: round(x, 3))
matrices = st.builds(Alike, entries, entries)


def whole(matrix: Alike) -> np.ndarray:
    return np.full((TOKENS, TOKENS), matrix.two) + (matrix.one - matrix.two) * np.eye(TOKENS)


def near(found: Alike, expected: np.ndarray) -> None:
    np.testing.assert_allclose(whole(found), expected, rtol=1e-10, atol=1e-10)


@given(matrices, matrices)
def test_as_whole_matrices(left, right):
    near(product(left, right, TOKENS), whole(left) @ whole(right))
    near(sandwich(left, right, TOKENS), whole(left).T @ whole(right) @ whole(left))
    assert trace(left, right, TOKENS) == pytest.approx(
        float((whole(left) * whole(right)).sum()), abs=1e-10
    )
    near(of_values(*left.values(TOKENS), TOKENS), whole(left))


@given(st.floats(0.01, 3), st.floats(0.01, 3), matrices)
def test_roots_and_solutions(shared, apart, covariance):
    gram = of_values(shared, apart, TOKENS)
    root = square_root(gram, TOKENS)
    near(product(root, root, TOKENS), whole(gram))
    np.testing.assert_allclose(
        whole(solved(gram, covariance, TOKENS)),
        np.linalg.solve(whole(gram), whole(covariance)),
        rtol=1e-8,
        atol=1e-8,
    )


def test_a_solution_leaves_out_what_gradients_do_not_have():
    """As the pseudoinverse does: all tokens' gradients are the same below uniform attention."""
    found = solved(Alike(1.0, 1.0), Alike(2.0, 0.5), TOKENS)
    np.testing.assert_allclose(
        whole(found), np.linalg.pinv(whole(Alike(1.0, 1.0))) @ whole(Alike(2.0, 0.5)), atol=1e-12
    )


@given(matrices, matrices, st.tuples(entries, entries, entries, entries))
def test_forward_is_the_adjoint(gradient, change, map_):
    back = LinearMap(*map_, 0.0)
    left = trace(mapped(back, gradient), change, TOKENS)
    assert left == pytest.approx(
        trace(gradient, mapped(adjoint(back, TOKENS), change), TOKENS), abs=1e-9
    )


def test_attention_forward_mixes_changes_as_it_mixes_values():
    back = gradient_at_values(uniform(TOKENS), TOKENS, TOKENS, 1.0)
    change = Alike(2.0, 0.7)
    mixing = np.full((TOKENS, TOKENS), 1 / TOKENS)
    near(mapped(adjoint(back, TOKENS), change), mixing @ whole(change) @ mixing.T)


def test_whole_matrices_as_numpy_has_them():
    generator = np.random.default_rng(1)
    vectors, gradients = generator.standard_normal((2, 40, TOKENS))
    gram, of_gradients, coefficients = (
        vectors.T @ vectors,
        gradients.T @ gradients,
        vectors[:TOKENS],
    )
    changed = gradients @ coefficients
    found = sandwich(Whole(coefficients), Whole(of_gradients), TOKENS)
    np.testing.assert_allclose(found.matrix, changed.T @ changed, rtol=1e-10)
    assert trace(Whole(gram), Alike(1.0, 0.0), TOKENS) == pytest.approx(np.trace(gram))
    np.testing.assert_allclose(
        Alike(2.0, 1.0).plus(Whole(gram), 3.0).matrix, 3 * gram + 1 + np.eye(TOKENS)
    )
    np.testing.assert_allclose(
        solved(Whole(gram), Whole(coefficients), TOKENS).matrix,
        np.linalg.solve(gram, coefficients),
        rtol=1e-8,
    )
    # The orthogonal factor of Γ Uᵀ at U, as its singular vectors say.
    left, _, right = np.linalg.svd(gradients @ vectors.T, full_matrices=False)
    expected = left[:, :TOKENS] @ right[:TOKENS] @ vectors
    np.testing.assert_allclose(
        gradients @ polar(Whole(gram), Whole(of_gradients), TOKENS).matrix,
        expected,
        rtol=1e-8,
        atol=1e-10,
    )
