"""Means over seeds or batches with their confidence intervals, and how sensitive a final loss is to
the learning rate.

The sensitivity is that of Wortsman et al. 2023, "Small-scale proxies for large-scale Transformer
training instabilities", arXiv:2309.14322, section 2.2: E over the rates of [min(ℓ(rate), ℓ₀) − ℓ*],
with ℓ* the lowest ℓ of the range and ℓ₀ the loss at initialisation. There the range is 3e-4 to 3e-1
in seven rates about equally far apart in the logarithm, and expectation and minimum are over these
seven.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

_Value = float | Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimate of one name; arrays have the shape of the values, () for numbers."""

    count: int
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    """Sample standard deviation, with count - 1; NaN for one value."""
    half_width: NDArray[np.float64]
    """The interval is mean ± half_width: Student's t times deviation / √count. NaN for one
    value.
    """

    @property
    def low(self) -> NDArray[np.float64]:
        return np.subtract(self.mean, self.half_width)

    @property
    def high(self) -> NDArray[np.float64]:
        return np.add(self.mean, self.half_width)


class Summary:
    """Running mean and variance of named numbers or vectors (Welford 1962); holds two numbers for
    each, no values.

    Names may come as they like: each has its own count. NaN stays in a mean once it is there.
    """

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._mean: dict[str, NDArray[np.float64]] = {}
        self._squares: dict[str, NDArray[np.float64]] = {}

    def add(self, values: Mapping[str, _Value]) -> None:
        """Adds the values of one seed or batch. Raises ValueError where a vector's shape differs
        from the earlier ones.
        """
        arrays = {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}
        for name, array in arrays.items():
            self._check(name, array)
        for name, array in arrays.items():
            self._pool(name, 1, array, np.zeros_like(array))

    def update(self, other: "Summary") -> None:
        """Take in another summary, as if its values had been added here (Chan et al. 1983). Raises
        as `add`.
        """
        for name, mean in other._mean.items():
            self._check(name, mean)
        for name, mean in other._mean.items():
            self._pool(name, other._count[name], mean, other._squares[name])

    def estimates(self, confidence: float = 0.95) -> dict[str, Estimate]:
        """Returns the estimates by name. Intervals are for independent values that are about
        normal; raises ValueError as `t_quantile`.
        """
        return {name: self._estimate(name, confidence) for name in self._mean}

    def _check(self, name: str, array: NDArray[np.float64]) -> None:
        if name in self._mean and self._mean[name].shape != array.shape:
            raise ValueError(
                f"{name!r} had shape {self._mean[name].shape} before, now {array.shape}"
            )

    def _pool(
        self, name: str, count: int, mean: NDArray[np.float64], squares: NDArray[np.float64]
    ) -> None:
        if name not in self._mean:
            # Copies: the caller may go on writing into its arrays.
            self._count[name] = count
            self._mean[name] = np.array(mean)
            self._squares[name] = np.array(squares)
            return
        before, total = self._count[name], self._count[name] + count
        step = mean - self._mean[name]
        self._mean[name] = self._mean[name] + step * (count / total)
        self._squares[name] = self._squares[name] + squares + step**2 * (before * count / total)
        self._count[name] = total

    def _estimate(self, name: str, confidence: float) -> Estimate:
        count = self._count[name]
        mean = self._mean[name]
        squares = self._squares[name]
        if count == 1:
            unknown = np.full_like(mean, math.nan)
            return Estimate(count=1, mean=mean, deviation=unknown, half_width=unknown)
        deviation = np.sqrt(np.divide(squares, count - 1))
        factor = t_quantile(confidence, count - 1) / math.sqrt(count)
        return Estimate(
            count=count, mean=mean, deviation=deviation, half_width=np.multiply(deviation, factor)
        )


_EXACT_UP_TO = 200


@lru_cache(maxsize=256)
def t_quantile(confidence: float, degrees: int) -> float:
    """t with Pr[|T| ≤ t] = confidence, T Student's t of so many degrees of freedom.

    Abramowitz & Stegun 1964: 26.7.3 and 26.7.4, inverted by bisection, up to 200 degrees; 26.7.5,
    an expansion in 1 / degrees, above, whose error is below 1e-9 for confidences up to 0.999.
    Raises ValueError unless 0 < confidence < 1 and degrees ≥ 1.
    """
    if not 0 < confidence < 1 or degrees < 1:
        raise ValueError(
            f"need 0 < confidence < 1 and degrees >= 1, got {confidence} and {degrees}"
        )
    if degrees > _EXACT_UP_TO:
        return _expanded(NormalDist().inv_cdf((1 + confidence) / 2), degrees)
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def t_beyond(t: float, degrees: int) -> float:
    """Pr[|T| > t], T Student's t of so many degrees of freedom: the two-sided level at which t
    decides.
    """
    return 1 - _within(math.atan(t / math.sqrt(degrees)), degrees)


def _within(angle: float, degrees: int) -> float:
    """Pr[|T| ≤ √degrees tan angle]: a finite sum of positive terms."""
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = degrees % 2
    terms, term = 0.0, cosine if odd else 1.0
    for k in range(1 + odd, degrees, 2):
        terms += term
        term *= cosine**2 * k / (k + 1)
    return (angle + sine * terms) * 2 / math.pi if odd else sine * terms


def _expanded(z: float, degrees: int) -> float:
    """Expands the quantile of Student's t from the normal quantile z, in powers of 1 / degrees."""
    polynomials = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(value / degrees**power for power, value in enumerate(polynomials, 1))


_Floats = NDArray[np.float64]
# S = seeds, R = rates, D = draws of the bootstrap
_DRAWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The sensitivity of one configuration over a range of rates, in the unit of its losses."""

    value: float
    low: float
    """Lower end of the bootstrap's interval over seeds; NaN for one seed."""
    high: float
    best_rate: int
    """Place, among the rates, of the lowest mean loss."""
    seeds: int
    replaced: int
    """The number of runs that counted as the loss at initialisation."""


def counted_losses(losses_SR: ArrayLike, initial_S: ArrayLike) -> _Floats:
    """Returns the losses as the sensitivity counts them, (S, R): the loss at initialisation for
    what is worse or not finite.

    losses_SR: final losses, one row a seed and one column a rate; NaN or an infinity for a run that
    diverged. initial_S: the loss at initialisation of each seed. Raises ValueError for shapes that
    do not fit, for no seed or rate, and for a loss at initialisation that is not finite.
    """
    losses_SR, initial_S = np.asarray(losses_SR, np.float64), np.asarray(initial_S, np.float64)
    if losses_SR.ndim != 2 or not losses_SR.size or initial_S.shape != losses_SR.shape[:1]:
        raise ValueError(
            "losses have a row for each seed and a column for each rate, and each seed has a loss "
            f"at initialisation; got the shapes {losses_SR.shape} and {initial_S.shape}"
        )
    if not np.isfinite(initial_S).all():
        raise ValueError(f"a loss at initialisation must be finite, got {initial_S.tolist()}")
    # An infinity below zero would be no loss that a run can have: it counts as one that diverged.
    losses_SR = np.where(np.isfinite(losses_SR), losses_SR, np.inf)
    counted_SR: _Floats = np.minimum(losses_SR, initial_S[:, None])
    return counted_SR


def lr_sensitivity(
    losses_SR: ArrayLike,
    initial_S: ArrayLike,
    *,
    seed: int = 0,
    draws: int = _DRAWS,
    confidence: float = 0.95,
) -> Sensitivity:
    """Sensitivity of the final loss to the rate, with a percentile-bootstrap interval over seeds.

    losses_SR, initial_S: as `counted_losses` takes them, and so are the errors; in nats or any
    other unit. Each rate counts the same, as in the source: rates at equal distances in the
    logarithm make the mean one over the logarithm. Of several seeds the mean at each rate is taken
    first, and the lowest of these means is the best loss. The bootstrap draws seeds with
    replacement, each with its losses at all rates, since the runs of a seed share their initial
    weights and their batches. Of few seeds such intervals are too narrow: of three it spans what
    their resamples span.

    seed: of the draws. confidence: in (0, 1), else ValueError.
    """
    counted_SR = counted_losses(losses_SR, initial_S)
    seeds = len(counted_SR)
    if not 0 < confidence < 1 or draws < 1:
        raise ValueError(
            f"need 0 < confidence < 1 and at least one draw, got {confidence} and {draws}"
        )
    low = high = math.nan
    if seeds > 1:
        # How often each draw has each seed: the means over seeds are then one product.
        weights_DS = (
            np.random.default_rng(seed).multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)
            / seeds
        )
        tail = (1 - confidence) / 2
        low, high = map(float, np.quantile(_deviation(weights_DS @ counted_SR), [tail, 1 - tail]))
    mean_R = counted_SR.mean(0)
    return Sensitivity(
        value=float(_deviation(mean_R)),
        low=low,
        high=high,
        best_rate=int(mean_R.argmin()),
        seeds=seeds,
        replaced=int((counted_SR != np.asarray(losses_SR)).sum()),
    )


def _deviation(losses_xR: _Floats) -> _Floats:
    """Returns the mean less minimum over the last axis, the rates."""
    found: _Floats = losses_xR.mean(-1) - losses_xR.min(-1)
    return found
