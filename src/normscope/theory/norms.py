"""The norms that a prediction may be made with, as maps of moments."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from .moments import Moments, Remainder, single
from .operations import MomentNorms
from .products import Linear, Products
from .squashing import Erf, Tanh

Norm = Literal["layer-norm", "rms-norm", "dyt", "derf"]
NORMS: tuple[Norm, ...] = ("layer-norm", "rms-norm", "dyt", "derf")
CENTRING: frozenset[str] = frozenset({"layer-norm"})
"""Of the norms a model can have: those that take the mean over features off."""
MOST = 0.03
"""The largest share of a value's square that may be what another norm has bent; Post-LN has 0.014."""
_SQUASHING: dict[str, Erf | Tanh] = {"dyt": Tanh(), "derf": Erf()}


class SquashingNorms:
    """DyT or Derf on moments, exact for Gaussian features: those of an embedding, of every F, and of sums of them.

    What comes of x is the best multiple of it, and a remainder without covariance with x or any part of it, which is a
    part of its own. So is the way back: a gradient is multiplied by the slope's mean, and the slope's scatter about it
    brings what arrives at the remainder.

    Calls raise ValueError where too much of x is one such remainder, whose features are not Gaussian.
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
        scatter = Linear(one.slope_q - square, 0.0, 0.0, two.slope - square, apart.slope - square)
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
        raise ValueError(
            f"a norm reads what another norm has squashed: {share:.2g} of its input's square is bent, and beyond "
            f"{MOST:g} features are not Gaussian, as theory takes them for dyt and derf: this placement can be "
            "predicted with layer-norm or rms-norm"
        )


class _Pair(NamedTuple):
    value: float
    slope: float


def norms_of(norm: Norm, epsilon: float) -> MomentNorms | SquashingNorms:
    """The norms of a formula read with that norm."""
    if norm in _SQUASHING:
        return SquashingNorms(_SQUASHING[norm])
    return MomentNorms(epsilon, centres=norm in CENTRING)
