"""The best of several learning rates by a parabola through the losses at them.

Near its best rate a final loss is close to a parabola over the logarithm of the rate. So three
trainings, at half a rate, at it and at twice it, name a rate between them, where the middle one
ends lowest; elsewhere the best lies outside, and another training is needed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_DRAWS = 10_000


def bottom(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns where the parabola through three points is lowest; the middle one's place where it
    has no bottom.

    x: rising. Beyond the outer points only where the middle one is not the lowest.

    >>> bottom([-1.0, 0.0, 1.0], [2.0, 1.0, 1.5])
    0.16666666666666666
    """
    (a, b, c), (left, here, right) = x, y
    rise, fall = (b - a) * (right - here), (c - b) * (left - here)
    return b - 0.5 * ((b - a) * rise - (c - b) * fall) / (rise + fall) if rise + fall > 0 else b


def lowest(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns where a curve is lowest, by the parabola through its lowest point and the neighbours
    of that.

    x: rising. That point itself where it is the first or the last, or where a neighbour is not
    finite.
    """
    at = min(range(len(y)), key=y.__getitem__)
    if not 0 < at < len(y) - 1 or not all(map(math.isfinite, y[at - 1 : at + 2])):
        return x[at]
    return bottom(x[at - 1 : at + 2], y[at - 1 : at + 2])


@dataclass(frozen=True, slots=True, kw_only=True)
class RateVertex:
    """The best rate that trainings at several rates name."""

    rate: float
    """At the vertex, between the neighbours of the rate that ended lowest; that rate itself where
    it is the least or the largest of all.
    """
    low: float
    """Lower end of the 95 % interval over seeds; NaN for one seed."""
    high: float
    further: float | None
    """The rate to train next where the lowest loss is that of the least or the largest rate, as far
    beyond it as its neighbour lies on the other side; None where it is neither."""
    undecided: float
    """The share of resamples of the seeds in which an end is the lowest; 0 for one seed."""


def rate_vertex(
    peak_lrs: Sequence[float], losses_SR: ArrayLike, *, seed: int = 0, draws: int = _DRAWS
) -> RateVertex:
    """Returns the best rate by the mean losses of the seeds, with its bootstrap interval.

    peak_lrs: three or more, rising. losses_SR: final losses, a row a seed and a column a rate;
    infinite for a run that diverged. Seeds are drawn with replacement, each with its losses at all
    rates, since the runs of a seed share their initial weights and their batches; of few seeds such
    an interval is too narrow. seed: of the draws. Raises ValueError for other shapes, and for rates
    that do not rise.

    >>> round(rate_vertex([5e-4, 1e-3, 2e-3], [[2.0, 1.0, 1.5]]).rate, 5)
    0.00112
    """
    losses = np.asarray(losses_SR, np.float64)
    if len(peak_lrs) < 3 or losses.ndim != 2 or losses.shape[1] != len(peak_lrs) or not len(losses):
        raise ValueError(
            "a vertex takes three or more rates, and losses with a row for each seed and a column "
            f"for each rate; got {len(peak_lrs)} rates and the shape {losses.shape}"
        )
    if peak_lrs[0] <= 0 or list(peak_lrs) != sorted(set(peak_lrs)):
        raise ValueError(f"rates must be above 0 and rise, got {list(peak_lrs)}")
    octaves = [math.log2(rate) for rate in peak_lrs]
    mean = losses.mean(0).tolist()
    low = high = math.nan
    undecided = 0.0
    if len(losses) > 1:
        drawn, ends = _resampled(octaves, losses, seed=seed, draws=draws)
        low, high = (2.0**end for end in np.quantile(drawn, [0.025, 0.975]).tolist())
        undecided = ends
    return RateVertex(
        rate=2.0 ** lowest(octaves, mean),
        low=low,
        high=high,
        further=_further(peak_lrs, mean),
        undecided=undecided,
    )


def _further(peak_lrs: Sequence[float], losses: Sequence[float]) -> float | None:
    """Returns the rate beyond the end that is lowest; None where no end is."""
    at = min(range(len(losses)), key=losses.__getitem__)
    neighbour = {0: 1, len(losses) - 1: len(losses) - 2}.get(at)
    return None if neighbour is None else peak_lrs[at] ** 2 / peak_lrs[neighbour]


def _resampled(
    octaves: Sequence[float], losses_SR: NDArray[np.float64], *, seed: int, draws: int
) -> tuple[list[float], float]:
    """Returns the vertex, in octaves, of every resample of the seeds, and the share of those in
    which an end is lowest.
    """
    seeds = len(losses_SR)
    counts_DS = np.random.default_rng(seed).multinomial(
        seeds, np.full(seeds, 1 / seeds), size=draws
    )
    # Few seeds have few resamples: each is worked out once.
    different_KS, times_K = np.unique(counts_DS, axis=0, return_counts=True)
    found = []
    ends = 0
    for counts_S, times in zip(different_KS, times_K.tolist(), strict=True):
        there = counts_S > 0  # nothing times the infinite loss of a seed that was not drawn
        mean_R = counts_S[there] @ losses_SR[there] / seeds
        found += [lowest(octaves, mean_R.tolist())] * times
        ends += times * (int(mean_R.argmin()) in (0, len(octaves) - 1))
    return found, ends / draws
