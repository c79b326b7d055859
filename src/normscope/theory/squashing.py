"""What a squashing norm, tanh(αx) or erf(αx), does to Gaussian features, and to gradients on their way back."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..placement.base import SQUASHING_SLOPE

Array = NDArray[np.float64]
_REACH, _STEP, _FINEST = 9.0, 0.1, 1440
"""Standard deviations to either side, their widest step, and the most steps."""


class Squashed(NamedTuple):
    """For a feature x of variance v: second moments of φ(x) and of φ'(x), which needs no other feature."""

    q: float
    """E φ²"""
    slope: float
    """E φ', which is E xφ / v: what of φ(x) is x."""
    slope_q: float
    """E φ'²"""
    growth: float
    """d E φ² / dv"""


class SquashedPair(NamedTuple):
    """For two features of that variance and a covariance."""

    p: float
    """E φ(x) φ(x')"""
    slope_p: float
    """E φ'(x) φ'(x')"""


class Erf:
    """Derf at initialisation, in closed form: the arcsine kernel (Williams 1997, eq. 11)."""

    def one(self, variance: float) -> Squashed:
        twice = 2 * SQUASHING_SLOPE**2 * variance
        slope = 2 * SQUASHING_SLOPE / math.sqrt(math.pi)
        wide = math.sqrt(1 + 2 * twice)
        return Squashed(
            q=2 / math.pi * math.asin(twice / (1 + twice)),
            slope=slope / math.sqrt(1 + twice),
            slope_q=slope**2 / wide,
            growth=slope**2 / ((1 + twice) * wide),
        )

    def two(self, variance: float, covariance: float) -> SquashedPair:
        own, common = 1 + 2 * SQUASHING_SLOPE**2 * variance, 2 * SQUASHING_SLOPE**2 * covariance
        slope = 2 * SQUASHING_SLOPE / math.sqrt(math.pi)
        return SquashedPair(
            p=2 / math.pi * math.asin(common / own), slope_p=slope**2 / math.sqrt((own - common) * (own + common))
        )


class Tanh:
    """DyT at initialisation, by the trapezoidal rule: exact to 1e-7 up to a variance of 4,000."""

    def one(self, variance: float) -> Squashed:
        sigma = math.sqrt(variance)
        z, weights = _nodes(_steps(sigma))
        value = np.tanh(SQUASHING_SLOPE * sigma * z)
        slope = SQUASHING_SLOPE * (1 - value**2)
        slope_q = float(weights @ slope**2)
        # By parts, E (z² - 1) f(σz) is σ² E f''.
        growth = float(weights @ ((z**2 - 1) * value**2)) / (2 * variance) if variance else slope_q
        return Squashed(float(weights @ value**2), float(weights @ slope), slope_q, growth)

    def two(self, variance: float, covariance: float) -> SquashedPair:
        sigma = math.sqrt(variance)
        z, weights = _nodes(_steps(sigma))
        rho = max(-1.0, min(1.0, covariance / variance)) if variance else 0.0
        first = np.tanh(SQUASHING_SLOPE * sigma * z)
        second = np.tanh(SQUASHING_SLOPE * sigma * (rho * z[:, None] + math.sqrt(1 - rho**2) * z[None, :]))
        given_first, square_given_first = second @ weights, second**2 @ weights
        slope = weights * SQUASHING_SLOPE**2 * (1 - first**2)
        return SquashedPair(p=float((weights * first) @ given_first), slope_p=float(slope @ (1 - square_given_first)))


def _steps(sigma: float) -> int:
    narrow = math.ceil(SQUASHING_SLOPE * sigma / 4)
    return min(_FINEST, round(2 * _REACH / _STEP) * max(1, narrow))


@lru_cache(maxsize=8)
def _nodes(steps: int) -> tuple[Array, Array]:
    z = np.linspace(-_REACH, _REACH, steps + 1)
    weights = np.exp(-(z**2) / 2)
    return z, weights / weights.sum()
