"""Kernels of activations beside quadrature, simulation and finite differences."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from normscope.theory.kernels import (
    GATED,
    Activation,
    _gelu,
    _gelu_slope,
    _silu,
    _silu_slope,
    activated,
    excess,
    gate_slope,
    kernel,
    slope,
)

VARIANCES, CORRELATIONS = (0.02, 0.5, 1.0, 3.0), (-0.9, -0.3, 0.0, 0.4, 0.95)
ACTIVATIONS = pytest.mark.parametrize("activation", ["relu", "gelu"])
GRID = pytest.mark.parametrize(
    ("variance", "correlation"), [(v, r) for v in VARIANCES for r in CORRELATIONS]
)


def integral(y, z):
    """By the trapezoidal rule."""
    return float((y[1:] + y[:-1]) @ np.diff(z)) / 2


def normal_density(z):
    return np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def normal_share(z):
    return np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2)(z)


@GRID
def test_relu_by_quadrature(variance, correlation):
    """Given the first pre-activation the second is normal, and E relu of a normal number is known:
    one integral.
    """
    sigma = math.sqrt(variance)
    z = np.linspace(0, 12, 20_001)
    mean, spread = correlation * z, math.sqrt(1 - correlation**2)
    given_first = mean * normal_share(mean / spread) + spread * normal_density(mean / spread)
    found = kernel("relu", variance, correlation)
    assert found.two == pytest.approx(
        variance * integral(z * given_first * normal_density(z), z), rel=1e-6
    )
    assert found.slope_two == pytest.approx(
        integral(normal_share(mean / spread) * normal_density(z), z), rel=1e-6
    )
    assert found.one == pytest.approx(variance * integral(z**2 * normal_density(z), z), rel=1e-9)
    assert found.mean == pytest.approx(sigma * integral(z * normal_density(z), z), rel=1e-6)


@ACTIVATIONS
@pytest.mark.parametrize(
    ("variance", "correlation"), [(0.02, 0.4), (1.0, -0.9), (3.0, 0.4), (3.0, 0.95)]
)
def test_by_simulation(activation, variance, correlation):
    """torch's own activation and its derivative, within five standard errors."""
    first, second = torch.randn(
        2, 200_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    second = correlation * first + math.sqrt(1 - correlation**2) * second
    values, slopes = [], []
    for z in (first, second):
        z = (math.sqrt(variance) * z).requires_grad_()
        value = torch.nn.functional.gelu(z) if activation == "gelu" else z.relu()
        slopes.append(torch.autograd.grad(value.sum(), z)[0])
        values.append(value.detach())
    found = kernel(activation, variance, correlation)
    for expected, draws in {
        found.one: values[0] ** 2,
        found.two: values[0] * values[1],
        found.slope_one: slopes[0] ** 2,
        found.slope_two: slopes[0] * slopes[1],
        found.mean: values[0],
    }.items():
        error = float(draws.std()) / math.sqrt(draws.numel())
        # A slope of ReLU is 0 or 1 half of the time; the floor is for what has no spread.
        assert float(draws.mean()) == pytest.approx(expected, abs=max(5 * error, 1e-12))


@pytest.mark.parametrize("variance", [1e-6, *VARIANCES, 10.0])
def test_mean_of_gelu(variance):
    """E z Φ(z) = σ² E φ(z), by parts; φ against a normal density is the density of a sum, at 0."""
    expected = variance / math.sqrt(2 * math.pi * (1 + variance))
    # The quadrature's error is 3e-5 at a variance of 10 and grows from there.
    assert kernel("gelu", variance, 0.3).mean == pytest.approx(
        expected, rel=1e-6 if variance <= 3 else 1e-4
    )


@ACTIVATIONS
@GRID
def test_slopes_are_derivatives_of_values(activation, variance, correlation):
    """Price's theorem: dE φ(z)φ(z') / dcov = E φ'(z)φ'(z')."""
    step = 1e-4
    low, high = (kernel(activation, variance, correlation + sign * step).two for sign in (-1, 1))
    slope = (high - low) / (2 * step * variance)
    assert kernel(activation, variance, correlation).slope_two == pytest.approx(slope, rel=1e-3)


def test_slope_of_gelu():
    z = np.linspace(-6, 6, 241)
    np.testing.assert_allclose(
        _gelu_slope(z), (_gelu(z + 1e-5) - _gelu(z - 1e-5)) / 2e-5, atol=1e-9
    )
    np.testing.assert_allclose(
        _gelu(z), torch.nn.functional.gelu(torch.from_numpy(z)).numpy(), atol=1e-14
    )


TORCHS = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "swiglu": torch.nn.functional.silu,
    "geglu": torch.nn.functional.gelu,
}


@pytest.mark.parametrize("activation", TORCHS)
def test_entries_and_their_slopes_are_torch_s(activation: Activation):
    """Of a gated one φ(z, u) = φ(z) u: by the partner it slopes as the gate's part, by the gate
    times the partner.
    """
    z, partner = torch.randn(2, 50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    z = z.requires_grad_()
    value = TORCHS[activation](z)
    (by_gate,) = torch.autograd.grad((value * partner if activation in GATED else value).sum(), z)
    near = {"rtol": 1e-12, "atol": 1e-14}
    entries, value = z.detach().numpy(), value.detach().numpy()
    np.testing.assert_allclose(activated(activation, entries), value, **near)
    np.testing.assert_allclose(
        slope(activation, entries), value if activation in GATED else by_gate.numpy(), **near
    )
    if activation in GATED:
        np.testing.assert_allclose(
            gate_slope(activation, entries, partner.numpy()), by_gate.numpy(), **near
        )


@ACTIVATIONS
@settings(max_examples=40)
@given(variance=st.floats(1e-6, 20), correlation=st.floats(-1, 1))
def test_ends(activation, variance, correlation):
    found = kernel(activation, variance, correlation)
    assert abs(found.two) <= found.one * (1 + 1e-9)
    assert kernel(activation, variance, 1.0).two == pytest.approx(found.one, rel=1e-9)
    assert kernel(activation, variance, 1.0).slope_two == pytest.approx(found.slope_one, rel=1e-9)
    assert kernel(activation, variance, 0.0).two == pytest.approx(found.mean**2, rel=1e-9)
    assert (found.one, found.mean) == (
        kernel(activation, variance, 0.0).one,
        kernel(activation, variance, 0.0).mean,
    )


@ACTIVATIONS
def test_a_correlation_off_by_rounding(activation):
    assert kernel(activation, 1.0, 1 + 1e-12) == kernel(activation, 1.0, 1.0)
    assert kernel(activation, 1.0, -1 - 1e-12) == kernel(activation, 1.0, -1.0)


def test_relu_scales_and_gelu_tends_to_it():
    assert kernel("relu", 12.0, 0.3).two == pytest.approx(
        4 * kernel("relu", 3.0, 0.3).two, rel=1e-14
    )
    assert kernel("relu", 1.0, 0.0).two == pytest.approx(1 / (2 * math.pi), rel=1e-14)
    # κ as it is usually written, normalised to 1 at ρ = 1.
    rho = 0.6
    kappa = (math.sqrt(1 - rho**2) + rho * (math.pi - math.acos(rho))) / math.pi
    assert kernel("relu", 1.0, rho).two == pytest.approx(kappa / 2, rel=1e-14)
    assert kernel("gelu", 100.0, 0.3).one == pytest.approx(50.0, rel=0.01)
    # z/2 near 0.
    assert kernel("gelu", 1e-6, 0.3).two == pytest.approx(0.25 * 0.3e-6, rel=1e-3)


def test_unknown_activation():
    with pytest.raises(
        ValueError, match="activation must be one of relu, gelu, swiglu, got 'tanh'"
    ):
        kernel("tanh", 1.0, 0.0)


@pytest.mark.parametrize(
    ("variance", "correlation"), [(0.02, 0.4), (1.0, -0.9), (3.0, 0.4), (3.0, 0.95)]
)
def test_swiglu_by_simulation(variance, correlation):
    """torch's silu(z) u for two tokens, and its two derivatives, within five standard errors."""
    draws = torch.randn(4, 200_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values, gates, partners = [], [], []
    for z, u in ((draws[0], draws[1]), (draws[2], draws[3])):
        if values:
            z, u = (
                correlation * a + math.sqrt(1 - correlation**2) * b
                for a, b in ((draws[0], z), (draws[1], u))
            )
        z, u = ((math.sqrt(variance) * x).requires_grad_() for x in (z, u))
        value = torch.nn.functional.silu(z) * u
        by_gate, by_partner = torch.autograd.grad(value.sum(), (z, u))
        values.append(value.detach())
        gates.append(by_gate)
        partners.append(by_partner)
    found = kernel("swiglu", variance, correlation)
    for expected, drawn in {
        found.one: values[0] ** 2,
        found.two: values[0] * values[1],
        found.slope_one: partners[0] ** 2,
        found.slope_two: partners[0] * partners[1],
        found.gate_slope_one: gates[0] ** 2,
        found.gate_slope_two: gates[0] * gates[1],
        found.mean: values[0],
    }.items():
        error = float(drawn.std()) / math.sqrt(drawn.numel())
        assert float(drawn.mean()) == pytest.approx(expected, abs=max(5 * error, 1e-12))


def test_slope_of_silu():
    z = np.linspace(-6, 6, 241)
    np.testing.assert_allclose(
        _silu_slope(z), (_silu(z + 1e-5) - _silu(z - 1e-5)) / 2e-5, atol=1e-9
    )
    np.testing.assert_allclose(
        _silu(z), torch.nn.functional.silu(torch.from_numpy(z)).numpy(), atol=1e-14
    )


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_excess_by_simulation(activation):
    z, u = (
        torch.randn(2, 400_000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        * 1.3
    )
    value = {
        "relu": z.relu(),
        "gelu": torch.nn.functional.gelu(z),
        "swiglu": torch.nn.functional.silu(z) * u,
    }[activation]
    squares = value.square()
    assert excess(activation, 1.69) == pytest.approx(
        float(squares.var() / squares.mean() ** 2), rel=0.06
    )


@pytest.mark.parametrize(
    ("activation", "of_fourth"), [("gelu", 2.0), ("swiglu", 8.0), ("geglu", 8.0)]
)
def test_excess_where_the_hidden_units_vanish(activation, of_fourth):
    """Smooth activations are lines near 0: a Gaussian's fourth moment is 3, that of a product of
    two is 9.
    """
    assert excess(activation, 0.0) == pytest.approx(of_fourth)
    assert excess(activation, 1e-12) == pytest.approx(of_fourth, rel=1e-3)
