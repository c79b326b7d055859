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
from .places import Factors, GradientMap

_REACH = 9.0
"""Standard deviations to either side over which a feature is integrated."""
_STEP = 0.1
"""The widest step of that, in standard deviations."""
_FINEST = 1440
"""The most steps, which are enough up to a variance of 4,000."""


MOST = 0.03
"""The largest share of a value's square that may be what a norm before has bent; Post-LN has 0.014.
A choice: up to it streams were up to a fifth too small. Equation T16.
"""


class _Squashed(NamedTuple):
    """Holds, of a feature x of variance v, second moments of φ(x) and of φ'(x) that need no second
    feature.
    """

    one: Entry
    """E φ²"""
    slope: Entry
    """E φ', which is E xφ / v: what of φ(x) is x."""
    slope_one: Entry
    """E φ'²"""
    growth: Entry
    """d E φ² / dv"""


class _SquashedPair(NamedTuple):
    """Holds the same of two features with those variances and a covariance; by place, of the
    variances (K,) and covariances (K, K).
    """

    two: Entry
    """E φ(x) φ(x')"""
    slope_two: Entry
    """E φ'(x) φ'(x')"""


class Erf:
    """Squashes by Derf at initialisation, in closed form: the arcsine kernel (Williams 1997, eq.
    11).
    """

    def single(self, variance: Entry) -> _Squashed:
        """Returns E φ² = (2/π) arcsin(2a²v / (1 + 2a²v)) and its like, a the slope at 0. Equation
        T16.
        """
        # Williams' kernel of erf(a x): 2a²v against 1 + 2a²v.
        twice = 2 * SQUASHING_SLOPE**2 * variance
        slope = 2 * SQUASHING_SLOPE / math.sqrt(math.pi)
        wide = root(1 + 2 * twice)
        return _Squashed(
            one=2 / math.pi * np.arcsin(twice / (1 + twice)),
            slope=slope / root(1 + twice),
            slope_one=slope**2 / wide,
            growth=slope**2 / ((1 + twice) * wide),
        )

    def pair(self, variance: Entry, covariance: Entry) -> _SquashedPair:
        """Returns E φ φ' = (2/π) arcsin(2a²c / √((1 + 2a²v)(1 + 2a²v'))) and the product of slopes.
        Equation T16.
        """
        own = root(1 + 2 * SQUASHING_SLOPE**2 * variance)
        common = 2 * SQUASHING_SLOPE**2 * covariance
        own = np.outer(own, own) if isinstance(own, np.ndarray) else own * own
        slope = 2 * SQUASHING_SLOPE / math.sqrt(math.pi)
        return _SquashedPair(
            two=2 / math.pi * np.arcsin(common / own),
            slope_two=slope**2 / root((own - common) * (own + common)),
        )


class Tanh:
    """Squashes by DyT at initialisation, by the trapezoidal rule: exact to 1e-7 up to a variance of
    4,000.
    """

    def single(self, variance: Entry) -> _Squashed:
        """Integrates over one Gaussian feature. Equation T16."""
        if isinstance(variance, np.ndarray):
            return _Squashed(*np.array([self.single(float(entry)) for entry in variance]).T)
        sigma = math.sqrt(variance)
        # φ(σz) over a standard normal z.
        z, weights = _nodes(_steps(sigma))
        value = np.tanh(SQUASHING_SLOPE * sigma * z)
        slope = SQUASHING_SLOPE * (1 - value**2)
        slope_one = float(weights @ slope**2)
        growth = slope_one
        if variance:
            # By parts, E (z² - 1) f(σz) is σ² E f''.
            growth = float(weights @ ((z**2 - 1) * value**2)) / (2 * variance)
        return _Squashed(
            one=float(weights @ value**2),
            slope=float(weights @ slope),
            slope_one=slope_one,
            growth=growth,
        )

    def pair(self, variance: Entry, covariance: Entry) -> _SquashedPair:
        """Integrates over two Gaussian features of one covariance; of arrays by Hermite's series.
        Equation T16.
        """
        if isinstance(variance, np.ndarray):
            size = np.sqrt(variance)
            z, weights = _nodes(_steps(float(size.max())))
            values = np.tanh(SQUASHING_SLOPE * size[:, None] * z)
            scale = np.outer(size, size)
            rho = np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0)
            rho = np.clip(rho, -1.0, 1.0)
            slopes = SQUASHING_SLOPE * (1 - values**2)
            return _SquashedPair(
                two=of_pairs(values, z, weights, rho),
                slope_two=of_pairs(slopes, z, weights, rho),
            )
        sigma = math.sqrt(variance)
        z, weights = _nodes(_steps(sigma))
        rho = max(-1.0, min(1.0, covariance / variance)) if variance else 0.0
        # Of the second given the first: (first, what is its own).
        correlated = rho * z[:, None] + math.sqrt(1 - rho**2) * z[None, :]
        first = np.tanh(SQUASHING_SLOPE * sigma * z)
        second = np.tanh(SQUASHING_SLOPE * sigma * correlated)
        # Means over the second feature, given the first.
        given_first = second @ weights
        square_given_first = second**2 @ weights
        slope = weights * SQUASHING_SLOPE**2 * (1 - first**2)
        return _SquashedPair(
            two=float((weights * first) @ given_first),
            slope_two=float(slope @ (1 - square_given_first)),
        )


def _steps(sigma: float) -> int:
    """Returns so many steps that φ is smooth over one, wherever it squashes. Equation T16."""
    narrow = math.ceil(SQUASHING_SLOPE * sigma / 4)
    return min(_FINEST, round(2 * _REACH / _STEP) * max(1, narrow))


@lru_cache(maxsize=8)
def _nodes(steps: int) -> tuple[Array, Array]:
    """Returns nodes and weights for means over a standard normal. Equation T16."""
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
        """Returns what the norm makes of x. Raises Unpredictable where too much of x is a
        remainder. Equation T16.
        """
        known = x.atoms.normed.get(x)
        if known is None:
            known = x.atoms.normed[x] = self._squashed(x)
        return known

    def __getattr__(self, name: str) -> Callable[..., Moments]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def _squashed(self, x: Moments) -> Moments:
        """Returns (E φ') x and a remainder, a part of its own with gradients of its own. Equation
        T16.
        """
        _refuse_bent(x)
        # φ(x) = (E φ') x + rest, by parts E x φ(x) = v E φ'.
        alone = self.squash.single(x.one)
        square, pair = squared(alone.slope)
        two = self._of_two(x.one, x.two, pair)
        apart = self._of_two(x.one, x.apart, pair)
        atom = x.atoms.add(
            between(0.0, alone.one - square * x.one, math.inf),
            two.two - pair * x.two,
            apart.two - pair * x.apart,
        )
        back: GradientMap
        # Gradients at the rest: what of φ'² is beyond the square of its mean.
        of_one = alone.slope_one - square
        of_two = two.slope_two - pair
        of_apart = apart.slope_two - pair
        if x.atoms.places is None:
            back = LinearMap(of_one, 0.0, 0.0, of_two, of_apart)
        else:
            back = Factors(of_one, of_two, of_apart)
        x.atoms.remainders.append(Remainder(x, atom, back))
        made = x.times(alone.slope, alone.slope, normed=False) + single(x.atoms, atom)
        made.spread = x.spread * alone.growth**2
        return made

    def _of_two(self, variance: Entry, covariance: Entry, slopes: Entry) -> _SquashedPair:
        """Returns products of two features. φ is odd: of independent features nothing is left but
        the product of mean slopes. Equation T16.
        """
        if vanishes(covariance):
            return _SquashedPair(0.0, slopes)
        return self.squash.pair(variance, covariance)


def _refuse_bent(x: Moments) -> None:
    """Raises Unpredictable where too much of x is one remainder: many small ones make a Gaussian
    sum, a large one does not. Equation T16.
    """
    bent = [remainder.atom for remainder in x.atoms.remainders if remainder.atom < x.size]
    if not bent:
        return
    # Squares of shares add up, as excess kurtosis does over independent parts.
    shares = x.coefficients[bent] ** 2 * x.atoms.squares[bent] / x.one
    share = math.sqrt(float(np.max((shares**2).sum(0))))
    x.atoms.bent = max(x.atoms.bent, share)
    if share > MOST:
        raise Unpredictable(
            f"a norm reads what another norm has squashed: {share:.2g} of its input's square is "
            f"bent, and beyond {MOST:g} features are not Gaussian, as theory takes them for dyt "
            "and derf: this placement can be predicted with layer-norm or rms-norm"
        )
