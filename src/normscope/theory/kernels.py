"""What an activation does to the second moments of Gaussian pre-activations, and to gradients on their way back."""

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Activation = Literal["relu", "gelu"]


class Kernel(NamedTuple):
    """For two pre-activations z, z' of variance v and correlation ρ: second moments of φ(z) and of φ'(z)."""

    q: float
    """E φ(z)²"""
    p: float
    """E φ(z) φ(z')"""
    slope_q: float
    """E φ'(z)²"""
    slope_p: float
    """E φ'(z) φ'(z')"""
    mean: float
    """E φ(z)"""


def kernel(activation: Activation, variance: float, correlation: float) -> Kernel:
    """Raises ValueError for an activation that has no kernel here."""
    correlation = min(1.0, max(-1.0, correlation))
    if activation == "relu":
        return _relu(variance, correlation)
    if activation == "gelu":
        return _by_quadrature(variance, correlation)
    raise ValueError(f"activation must be relu or gelu, got {activation!r}")


def _relu(variance: float, correlation: float) -> Kernel:
    """Cho & Saul 2009, eq. 1 and 6 (arc-cosine kernels of order 1 and 0)."""
    angle = math.acos(correlation)
    order_1 = (math.sqrt(1 - correlation**2) + correlation * (math.pi - angle)) / (2 * math.pi)
    return Kernel(
        q=variance / 2,
        p=variance * order_1,
        slope_q=0.5,
        slope_p=(math.pi - angle) / (2 * math.pi),
        mean=math.sqrt(variance / (2 * math.pi)),
    )


def _by_quadrature(variance: float, correlation: float) -> Kernel:
    """GELU by Gauss-Hermite quadrature."""
    nodes, weights = _nodes()
    sigma = math.sqrt(variance)
    first = sigma * nodes[:, None]
    second = sigma * (correlation * nodes[:, None] + math.sqrt(1 - correlation**2) * nodes[None, :])
    joint = weights[:, None] * weights[None, :]
    value, slope = _gelu(first), _gelu_slope(first)
    return Kernel(
        q=float(weights @ value[:, 0] ** 2),
        p=float((joint * value * _gelu(second)).sum()),
        slope_q=float(weights @ slope[:, 0] ** 2),
        slope_p=float((joint * slope * _gelu_slope(second)).sum()),
        mean=float(weights @ value[:, 0]),
    )


@lru_cache(maxsize=1)
def _nodes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For expectations under a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(48)
    return nodes, weights / weights.sum()


_erf = np.vectorize(math.erf, otypes=[float])


def _gelu(z: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = 0.5 * z * (1 + _erf(z / math.sqrt(2)))
    return result


def _gelu_slope(z: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = 0.5 * (1 + _erf(z / math.sqrt(2))) + z * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return result
