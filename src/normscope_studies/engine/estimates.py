"""Means, slopes, exponents and shares with their 95 % intervals."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from normscope.measure import Estimate, Summary, t_quantile
from normscope.report.words import interval

Floats = NDArray[np.float64]
_One = TypeVar("_One")
NORMAL = 1.959964
"""The 97.5 % quantile of the normal distribution."""


def estimate(values_S: ArrayLike) -> Estimate:
    """Returns the mean over the first axis, the seeds, with its 95 % interval."""
    summary = Summary()
    for value in np.asarray(values_S, dtype=np.float64):
        summary.add({"": value})
    return summary.estimates()[""]


def jackknife(items: Sequence[_One], of: Callable[[Sequence[_One]], float]) -> Estimate:
    """Returns a value of all items with its 95 % interval, by leaving out one at a time
    (Tukey's).
    """
    whole, count = of(items), len(items)
    without = []
    for one in items:
        others = [other for other in items if other is not one]
        without.append(of(others))
    return estimate([count * whole - (count - 1) * value for value in without])


_RESAMPLES, _TAIL = 2_000, 0.025


def bootstrap(
    items: Sequence[_One], of: Callable[[Sequence[_One]], float], *, seed: int = 0
) -> tuple[float, float, float]:
    """Returns a value of all items, and the ends of its 95 % percentile interval over resamples of
    them (Efron 1979).

    Items are drawn with replacement, as many as there are, 2,000 times; of few items such an
    interval is too narrow. Resamples whose value is not finite are left out; where these are more
    than one in twenty, and for one item, both ends are NaN.
    """
    count, whole = len(items), of(items)
    if count < 2:
        return whole, math.nan, math.nan
    draws = np.random.default_rng(seed).integers(count, size=(_RESAMPLES, count))
    found = []
    for draw in draws.tolist():
        resample = [items[place] for place in draw]
        found.append(of(resample))
    values = np.array(found)
    there = values[np.isfinite(values)]
    if len(there) < 0.95 * _RESAMPLES:
        return whole, math.nan, math.nan
    low, high = np.quantile(there, [_TAIL, 1 - _TAIL])
    return whole, float(low), float(high)


def slopes(x_X: ArrayLike, y_SX: ArrayLike) -> Floats:
    """Least-squares slope of ln y over x for each seed, (S,)."""
    x_X = np.asarray(x_X, dtype=np.float64)
    centred_X = x_X - x_X.mean()
    found: Floats = np.log(np.asarray(y_SX, dtype=np.float64)) @ centred_X / (centred_X @ centred_X)
    return found


def exponent(x_X: ArrayLike, y_SX: ArrayLike) -> Estimate:
    """Returns the slope of ln y over ln x, fitted seed by seed: 1/2 for y = √x."""
    return estimate(slopes(np.log(np.asarray(x_X, dtype=np.float64)), y_SX))


def proportion(count: int, total: int) -> tuple[float, float]:
    """Returns the 95 % interval of a share of which `count` of `total` were seen, by Wilson 1927;
    (0, 1) for none at all.
    """
    return _wilson(count / total, total, NORMAL) if total else (0.0, 1.0)


def clustered_proportion(
    holds: Sequence[bool], clusters: Sequence[Hashable]
) -> tuple[float, float]:
    """Returns the 95 % interval of a share of cases that come in clusters, such as families, and
    are alike within them.

    Wilson's with as many cases as would scatter so if each stood alone, at most those there are and
    as many as clusters where all agree (Korn and Graubard 1998), and Student's t of one less than
    the clusters; (0, 1) for one cluster.
    """
    count = sum(holds)
    total = len(holds)
    groups = set(clusters)
    if len(groups) < 2:
        return 0.0, 1.0
    share, quantile = count / total, t_quantile(0.95, len(groups) - 1)
    if count in (0, total):
        return _wilson(share, len(groups), quantile)
    off: defaultdict[Hashable, float] = defaultdict(float)
    for held, cluster in zip(holds, clusters, strict=True):
        off[cluster] += held - share
    variance = (
        len(groups) / (len(groups) - 1) * math.fsum(one**2 for one in off.values()) / total**2
    )
    alone = share * (1 - share) / variance if variance else total
    return _wilson(share, min(total, alone), quantile)


def _wilson(share: float, total: float, quantile: float) -> tuple[float, float]:
    square = quantile**2 / total
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(share * (1 - share) * square + square**2 / 4) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def with_interval(found: Estimate, decimals: int = 3) -> str:
    """Returns a number with its interval, in words."""
    return interval(float(found.mean), float(found.half_width), decimals)


def part(of: Estimate, places: slice | Sequence[int] | int) -> Estimate:
    """Returns those places of a vector's estimate, or one of them as a number's."""
    return Estimate(
        count=of.count,
        mean=of.mean[places],
        deviation=of.deviation[places],
        half_width=of.half_width[places],
    )


def plain_estimate(found: Estimate) -> dict[str, Any]:
    """For results.json."""
    return {
        "mean": found.mean,
        "half_width": found.half_width,
        "standard_error": found.deviation / np.sqrt(found.count),
        "seeds": found.count,
    }
