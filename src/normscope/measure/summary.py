"""Means over seeds or batches with their confidence intervals, one value at a time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_Value = float | Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of one name; arrays have the shape of the values, () for numbers."""

    count: int
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    """Sample standard deviation, with count - 1; NaN for one value."""
    half_width: NDArray[np.float64]
    """The interval is mean ± half_width: Student's t times deviation / √count. NaN for one value."""

    @property
    def low(self) -> NDArray[np.float64]:
        return np.subtract(self.mean, self.half_width)

    @property
    def high(self) -> NDArray[np.float64]:
        return np.add(self.mean, self.half_width)


class Summary:
    """Running mean and variance of named numbers or vectors (Welford 1962); holds two numbers for each, no values.

    Names may come as they like: each has its own count. NaN stays in a mean once it is there.
    """

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._mean: dict[str, NDArray[np.float64]] = {}
        self._squares: dict[str, NDArray[np.float64]] = {}

    def add(self, values: Mapping[str, _Value]) -> None:
        """What one seed or batch gave. Raises ValueError where a vector's shape is not that of before."""
        arrays = {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}
        for name, array in arrays.items():
            self._check(name, array)
        for name, array in arrays.items():
            self._pool(name, 1, array, np.zeros_like(array))

    def update(self, other: "Summary") -> None:
        """Take in another summary, as if its values had been added here (Chan et al. 1983). Raises as `add`."""
        for name, mean in other._mean.items():
            self._check(name, mean)
        for name, mean in other._mean.items():
            self._pool(name, other._count[name], mean, other._squares[name])

    def estimates(self, confidence: float = 0.95) -> dict[str, Estimate]:
        """By name. Intervals are for independent values that are about normal; raises ValueError as `t_quantile`."""
        return {name: self._estimate(name, confidence) for name in self._mean}

    def _check(self, name: str, array: NDArray[np.float64]) -> None:
        if name in self._mean and self._mean[name].shape != array.shape:
            raise ValueError(f"{name!r} had shape {self._mean[name].shape} before, now {array.shape}")

    def _pool(self, name: str, count: int, mean: NDArray[np.float64], squares: NDArray[np.float64]) -> None:
        if name not in self._mean:
            # Copies: the caller may go on writing into its arrays.
            self._count[name], self._mean[name], self._squares[name] = count, np.array(mean), np.array(squares)
            return
        before, total = self._count[name], self._count[name] + count
        step = mean - self._mean[name]
        self._mean[name] = self._mean[name] + step * (count / total)
        self._squares[name] = self._squares[name] + squares + step**2 * (before * count / total)
        self._count[name] = total

    def _estimate(self, name: str, confidence: float) -> Estimate:
        count, mean, squares = self._count[name], self._mean[name], self._squares[name]
        if count == 1:
            unknown = np.full_like(mean, math.nan)
            return Estimate(count=1, mean=mean, deviation=unknown, half_width=unknown)
        deviation = np.sqrt(np.divide(squares, count - 1))
        factor = t_quantile(confidence, count - 1) / math.sqrt(count)
        return Estimate(count=count, mean=mean, deviation=deviation, half_width=np.multiply(deviation, factor))


_EXACT_UP_TO = 200


@lru_cache(maxsize=256)
def t_quantile(confidence: float, degrees: int) -> float:
    """t with Pr[|T| ≤ t] = confidence, T Student's t of so many degrees of freedom.

    Abramowitz & Stegun 1964: 26.7.3 and 26.7.4, inverted by bisection, up to 200 degrees; 26.7.5, an expansion in
    1 / degrees, above, whose error is below 1e-9 for confidences up to 0.999. Raises ValueError unless
    0 < confidence < 1 and degrees ≥ 1.
    """
    if not 0 < confidence < 1 or degrees < 1:
        raise ValueError(f"need 0 < confidence < 1 and degrees >= 1, got {confidence} and {degrees}")
    if degrees > _EXACT_UP_TO:
        return _expanded(NormalDist().inv_cdf((1 + confidence) / 2), degrees)
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


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
    """From the normal quantile z."""
    polynomials = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(value / degrees**power for power, value in enumerate(polynomials, 1))
