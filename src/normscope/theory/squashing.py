"""Squashing norms, tanh(αx) or erf(αx), on moments: Gaussian features forward, and gradients on their way back."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..placement.base import SQUASHING_SLOPE
from .kernels import Array
from .mixing import LinearMap, Products
from .moments import Moments, Remainder, Unpredictable, single

_REACH, _STEP, _FINEST = 9.0, 0.1, 1440
"""Standard deviations to either side, their widest step, and the most steps."""


MOST = 0.03
"""The largest share of a value's square that may be what another norm has bent; Post-LN has 0.014."""


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


class SquashingNorms:
    """DyT or Derf on moments, exact for Gaussian features: those of an embedding, of every F, and of sums of them.

    What comes of x is the best multiple of it, and a remainder without covariance with x or any part of it, which is a
    part of its own. So is the way back: a gradient is multiplied by the slope's mean, and the slope's scatter about it
    brings what arrives at the remainder.

    Calls raise Unpredictable where too much of x is one such remainder, whose features are not Gaussian.
    """

    def __init__(self, squash: Erf | Tanh) -> None:
        self.squash = squash

    def __call__(self, x: Moments, /, *, groups: int | None = None) -> Moments:
        known = x.atoms.squashed.get(x)
        if known is None:
            known = x.atoms.squashed[x] = self._squashed(x)
        return known

    def __getattr__(self, name: str) -> Callable[..., Moments]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def _squashed(self, x: Moments) -> Moments:
        _refuse_bent(x)
        one = self.squash.one(x.q)
        two = self._of_two(x.q, x.p, one.slope)
        apart = self._of_two(x.q, x.apart, one.slope)
        square = one.slope**2
        left = Products(one.q, two.value, apart.value).plus(x.products, -square)
        atom = x.atoms.add(max(0.0, left.one), left.two, left.apart)
        scatter = LinearMap(one.slope_q - square, 0.0, 0.0, two.slope - square, apart.slope - square)
        x.atoms.remainders.append(Remainder(x, atom, scatter))
        made = x.times(one.slope, one.slope, normed=False) + single(x.atoms, atom)
        made.spread = x.spread * one.growth**2
        return made

    def _of_two(self, variance: float, covariance: float, slope: float) -> "_Pair":
        """Both functions are odd: of independent features nothing is left but the mean slope."""
        if not covariance:
            return _Pair(0.0, slope * slope)
        return _Pair(*self.squash.two(variance, covariance))


def _refuse_bent(x: Moments) -> None:
    """Many small remainders make a Gaussian sum, a large one does not."""
    bent = [remainder.atom for remainder in x.atoms.remainders if remainder.atom < x.size]
    if not bent:
        return
    shares = x.coefficients[bent] ** 2 * x.atoms.q[bent] / x.q
    share = math.sqrt(float(shares @ shares))
    if share > MOST:
        raise Unpredictable(
            f"a norm reads what another norm has squashed: {share:.2g} of its input's square is bent, and beyond "
            f"{MOST:g} features are not Gaussian, as theory takes them for dyt and derf: this placement can be "
            "predicted with layer-norm or rms-norm"
        )


class _Pair(NamedTuple):
    value: float
    slope: float
