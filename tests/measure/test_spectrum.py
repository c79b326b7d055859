"""Moments and the largest singular value of Jacobians, against maps whose singular values are known."""

import math

import pytest
import torch
from torch import Tensor

from normscope.measure.jacobian import jacobian_spectrum


def random_matrix(rows: int, columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def with_singular_values(values: Tensor) -> Tensor:
    left, _ = torch.linalg.qr(random_matrix(len(values), len(values)))
    right, _ = torch.linalg.qr(random_matrix(len(values), len(values)).T)
    return left @ values.diag() @ right


def test_a_multiple_of_an_orthogonal_matrix_has_one_singular_value() -> None:
    matrix = with_singular_values(torch.full((50,), 3.0, dtype=torch.float64))
    found = jacobian_spectrum(lambda x: matrix @ x, torch.randn(50, dtype=torch.float64))
    assert found.root_mean_square == pytest.approx(3, rel=1e-10)
    assert found.largest == pytest.approx(3, rel=1e-10)
    assert found.variation == pytest.approx(0, abs=1e-5)
    assert found.peak == pytest.approx(1, rel=1e-10)


def test_a_diagonal_map_gives_its_moments_exactly_and_its_largest_entry() -> None:
    """Random signs see a diagonal as it is: vᵀ D v is its trace."""
    values = torch.linspace(0.1, 2.0, 40, dtype=torch.float64)
    found = jacobian_spectrum(lambda x: values * x, torch.zeros(40, dtype=torch.float64), steps=30)
    assert found.mean_square == pytest.approx(float(values.square().mean()), rel=1e-10)
    assert found.mean_fourth == pytest.approx(float(values.pow(4).mean()), rel=1e-10)
    assert found.largest == pytest.approx(2.0, rel=1e-9)
    squares = values.square()
    assert found.variation == pytest.approx(float(squares.std(correction=0) / squares.mean()), rel=1e-9)


def test_moments_are_estimated_without_bias_and_the_largest_is_bounded_from_below() -> None:
    matrix = random_matrix(60, 80) / math.sqrt(80)
    exact = torch.linalg.svdvals(matrix)
    found = [
        jacobian_spectrum(lambda x: matrix @ x, torch.zeros(80, dtype=torch.float64), steps=4, seed=seed)
        for seed in range(400)
    ]
    for of, power in (("mean_square", 2), ("mean_fourth", 4)):
        values = torch.tensor([getattr(one, of) for one in found], dtype=torch.float64)
        error = float(values.std()) / math.sqrt(len(found))
        assert abs(float(values.mean()) - float(exact.pow(power).sum() / 80)) < 4 * error
    largest = [one.largest for one in found]
    assert max(largest) <= float(exact[0]) * (1 + 1e-9)
    assert min(largest) > 0.8 * float(exact[0])


def test_a_map_that_mixes_rows_is_one_matrix_and_its_jacobian_is_taken_where_it_is_asked() -> None:
    """x ↦ x ⊙ x summed over rows into every row: against the whole Jacobian of autograd."""
    x_ND = random_matrix(4, 6)

    def f(x: Tensor) -> Tensor:
        return x * x + x.tanh().sum(0, keepdim=True)

    whole = torch.autograd.functional.jacobian(lambda flat: f(flat.view(4, 6)).flatten(), x_ND.flatten())
    found = jacobian_spectrum(f, x_ND, steps=24)
    assert found.largest == pytest.approx(float(torch.linalg.matrix_norm(whole, 2)), rel=1e-8)


def test_a_constant_map_has_no_spectrum_to_speak_of() -> None:
    found = jacobian_spectrum(lambda x: 0 * x, torch.ones(10))
    assert (found.mean_square, found.largest) == (0, 0)
    assert math.isnan(found.variation)
    assert math.isnan(found.peak)


def test_steps_are_refused_where_there_are_none() -> None:
    with pytest.raises(ValueError, match="at least one product"):
        jacobian_spectrum(lambda x: x, torch.ones(3), steps=0)
