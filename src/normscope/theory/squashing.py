"""Squashing norms, tanh(αx) or erf(αx), on moments: Gaussian features forward, and gradients on
their way back.

The equation is T16 of docs/theory.md.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..placement.base import SQUASHING_SLOPE
from .kernels import of_pairs
from .mixing import Array, Entry, LinearMap, between, root, squared, vanishes
from .moments import Moments, Remainder, Unpredictable, single
from .places import Factors

_REACH = 9.0
_STEP = 0.1
_FINEST = 1440
"""Standard deviations to either side, their widest step, and the most steps."""


MOST = 0.03
"""The largest share of a value's square that may be what another norm has bent; Post-LN has
0.014.
"""


class _Squashed(NamedTuple):
    """For a feature x of variance v: second moments of φ(x) and of φ'(x), which needs no other
    feature.
    """

    q: Entry
    """E φ²"""
    slope: Entry
    """E φ', which is E xφ / v: what of φ(x) is x."""
    slope_q: Entry
    """E φ'²"""
    growth: Entry
    """d E φ² / dv"""


class _SquashedPair(NamedTuple):
    """For two features of those variances and a covariance; by place, of the variances (K,) and
    covariances (K, K).
    """

    p: Entry
    """E φ(x) φ(x')"""
    slope_p: Entry
    """E φ'(x) φ'(x')"""


class Erf:
    """Derf at initialisation, in closed form: the arcsine kernel (Williams 1997, eq. 11)."""

    def one(self, variance: Entry) -> _Squashed:
        twice = 2 * SQUASHING_SLOPE**2 * variance
        slope = 2 * SQUASHING_SLOPE / math.sqrt(math.pi)
        wide = root(1 + 2 * twice)
        return _Squashed(
            q=2 / math.pi * np.arcsin(twice / (1 + twice)),
            slope=slope / root(1 + twice),
            slope_q=slope**2 / wide,
            growth=slope**2 / ((1 + twice) * wide),
        )

    def two(self, variance: Entry, covariance: Entry) -> _SquashedPair:
        own, common = (
            root(1 + 2 * SQUASHING_SLOPE**2 * variance),
            2 * SQUASHING_SLOPE**2 * covariance,
        )
        own = np.outer(own, own) if isinstance(own, np.ndarray) else own * own
        slope = 2 * SQUASHING_SLOPE / math.sqrt(math.pi)
        return _SquashedPair(
            p=2 / math.pi * np.arcsin(common / own),
            slope_p=slope**2 / root((own - common) * (own + common)),
        )


class Tanh:
    """DyT at initialisation, by the trapezoidal rule: exact to 1e-7 up to a variance of 4,000."""

    def one(self, variance: Entry) -> _Squashed:
        if isinstance(variance, np.ndarray):
            return _Squashed(*np.array([self.one(float(one)) for one in variance]).T)
        sigma = math.sqrt(variance)
        z, weights = _nodes(_steps(sigma))
        value = np.tanh(SQUASHING_SLOPE * sigma * z)
        slope = SQUASHING_SLOPE * (1 - value**2)
        slope_q = float(weights @ slope**2)
        # By parts, E (z² - 1) f(σz) is σ² E f''.
        growth = float(weights @ ((z**2 - 1) * value**2)) / (2 * variance) if variance else slope_q
        return _Squashed(float(weights @ value**2), float(weights @ slope), slope_q, growth)

    def two(self, variance: Entry, covariance: Entry) -> _SquashedPair:
        if isinstance(variance, np.ndarray):
            size = np.sqrt(variance)
            z, weights = _nodes(_steps(float(size.max())))
            values = np.tanh(SQUASHING_SLOPE * size[:, None] * z)
            scale = np.outer(size, size)
            rho = np.clip(
                np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0), -1.0, 1.0
            )
            return _SquashedPair(
                of_pairs(values, z, weights, rho),
                of_pairs(SQUASHING_SLOPE * (1 - values**2), z, weights, rho),
            )
        sigma = math.sqrt(variance)
        z, weights = _nodes(_steps(sigma))
        rho = max(-1.0, min(1.0, covariance / variance)) if variance else 0.0
        first = np.tanh(SQUASHING_SLOPE * sigma * z)
        second = np.tanh(
            SQUASHING_SLOPE * sigma * (rho * z[:, None] + math.sqrt(1 - rho**2) * z[None, :])
        )
        given_first, square_given_first = second @ weights, second**2 @ weights
        slope = weights * SQUASHING_SLOPE**2 * (1 - first**2)
        return _SquashedPair(
            p=float((weights * first) @ given_first),
            slope_p=float(slope @ (1 - square_given_first)),
        )


def _steps(sigma: float) -> int:
    narrow = math.ceil(SQUASHING_SLOPE * sigma / 4)
    return min(_FINEST, round(2 * _REACH / _STEP) * max(1, narrow))


@lru_cache(maxsize=8)
def _nodes(steps: int) -> tuple[Array, Array]:
    z = np.linspace(-_REACH, _REACH, steps + 1)
    weights = np.exp(-(z**2) / 2)
    return z, weights / weights.sum()


class SquashingNorms:
    """DyT or Derf on moments, exact for Gaussian features: those of an embedding, of every F, and
    of sums of them.

    What comes of x is the best multiple of it, and a remainder without covariance with x or any
    part of it, which is a part of its own. So is the way back: a gradient is multiplied by the
    slope's mean, and the slope's scatter about it brings what arrives at the remainder.

    Calls raise Unpredictable where too much of x is one such remainder, whose features are not
    Gaussian.
    """

    def __init__(self, squash: Erf | Tanh) -> None:
        self.squash = squash

    def __call__(self, x: Moments, /, *, groups: int | None = None) -> Moments:
        known = x.atoms.normed.get(x)
        if known is None:
            known = x.atoms.normed[x] = self._squashed(x)
        return known

    def __getattr__(self, name: str) -> Callable[..., Moments]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def _squashed(self, x: Moments) -> Moments:
        _refuse_bent(x)
        one = self.squash.one(x.q)
        square, pair = squared(one.slope)
        two = self._of_two(x.q, x.p, pair)
        apart = self._of_two(x.q, x.apart, pair)
        atom = x.atoms.add(
            between(0.0, one.q - square * x.q, math.inf),
            two.p - pair * x.p,
            apart.p - pair * x.apart,
        )
        scatter = (one.slope_q - square, two.slope_p - pair, apart.slope_p - pair)
        back = (
            LinearMap(scatter[0], 0.0, 0.0, *scatter[1:])
            if x.atoms.places is None
            else Factors(*scatter)
        )
        x.atoms.remainders.append(Remainder(x, atom, back))
        made = x.times(one.slope, one.slope, normed=False) + single(x.atoms, atom)
        made.spread = x.spread * one.growth**2
        return made

    def _of_two(self, variance: Entry, covariance: Entry, slopes: Entry) -> _SquashedPair:
        """Both functions are odd: of independent features nothing is left but the product of mean
        slopes.
        """
        return (
            _SquashedPair(0.0, slopes)
            if vanishes(covariance)
            else self.squash.two(variance, covariance)
        )


def _refuse_bent(x: Moments) -> None:
    """Many small remainders make a Gaussian sum, a large one does not."""
    bent = [remainder.atom for remainder in x.atoms.remainders if remainder.atom < x.size]
    if not bent:
        return
    shares = x.coefficients[bent] ** 2 * x.atoms.q[bent] / x.q
    share = math.sqrt(float(np.max((shares**2).sum(0))))
    x.atoms.bent = max(x.atoms.bent, share)
    if share > MOST:
        raise Unpredictable(
            f"a norm reads what another norm has squashed: {share:.2g} of its input's square is "
            f"bent, and beyond {MOST:g} features are not Gaussian, as theory takes them for dyt "
            "and derf: this placement can be predicted with layer-norm or rms-norm"
        )
