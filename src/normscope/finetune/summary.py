"""The summary of one setting's seeds: means with intervals over seeds and over dev rows, compared
with the majority class.

Two things scatter. Another seed gives another model, and another dev set of the same size would
have other rows in it; an interval over one of them says nothing of the other.
"""

# P = dev rows, S = seeds

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.labelled import LabelledData
from ..errors import UserError
from ..measure import Summary
from ..report.words import interval, span
from .cells import TuningCell, TuningScores, TuningSetting

_DRAWS, _AT_ONCE = 10_000, 200
"""The draws of the bootstrap, and how many of them are in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedsMean:
    """A mean over seeds with its 95 % interval, mean ± half_width, by Student's t."""

    mean: float
    half_width: float | None
    """Half the width of the interval; None for one seed."""
    seeds: int

    @property
    def low(self) -> float | None:
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def words(self) -> str:
        return interval(self.mean, self.half_width, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsMean:
    """A mean over dev rows with the 95 % interval of its bootstrap: percentiles of resamples."""

    mean: float
    low: float
    high: float

    @property
    def words(self) -> str:
        return f"{interval(self.mean, None, 4)} ({span([self.low, self.high], 4)})"


def over_seeds(values: Sequence[float]) -> SeedsMean:
    """Returns the mean over seeds with its interval. Raises ValueError for no values."""
    if not values:
        raise ValueError("a mean over seeds needs one at least")
    summary = Summary()
    for value in values:
        summary.add({"": value})
    found = summary.estimates()[""]
    half_width = float(found.half_width)
    return SeedsMean(
        mean=float(found.mean),
        half_width=None if math.isnan(half_width) else half_width,
        seeds=len(values),
    )


def over_rows(values_P: ArrayLike, *, draws: int = _DRAWS, seed: int = 0) -> RowsMean:
    """Returns the mean over rows, and where it lies in 95 % of resamples of them.

    Of a difference between two models, given row by row, the interval is that of a paired
    bootstrap (Efron 1979): each resample has the same rows for both. seed: of the draws. Raises
    ValueError without a row.
    """
    values = np.asarray(values_P, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"a value for each row is needed, got the shape {values.shape}")
    generator = np.random.default_rng(seed)
    rows = len(values)
    means: list[NDArray[np.float64]] = []
    for begun in range(0, draws, _AT_ONCE):
        count = min(_AT_ONCE, draws - begun)
        times = generator.multinomial(rows, np.full(rows, 1 / rows), size=count)
        means.append(times @ values / rows)
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return RowsMean(mean=float(values.mean()), low=float(low), high=float(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedSetting:
    """One setting over its seeds."""

    setting: TuningSetting
    accuracies: Sequence[float]
    """The accuracies of the seeds that stayed finite, in their order."""
    non_finite_seeds: Sequence[int]
    accuracy: SeedsMean
    accuracy_of_other_seeds: SeedsMean | None
    """The accuracy without the first seed, by which the setting was chosen: what the choice cannot
    have flattered. None where that was the only one.
    """
    majority: float
    """Accuracy of always giving the most frequent label of the rows to train on."""
    above_majority: RowsMean
    """Mean accuracy over seeds less that of the majority class, row by row."""

    @property
    def beats_majority(self) -> bool | None:
        """True where both intervals lie above the majority class; None where they do not decide."""
        low = self.accuracy.low
        if low is None:
            return None
        if low > self.majority and self.above_majority.low > 0:
            return True
        high = 2 * self.accuracy.mean - low
        return False if high <= self.majority or self.above_majority.high <= 0 else None


def tuned_setting(cells: Sequence[TuningCell], data: LabelledData) -> TunedSetting:
    """Sums up finished cells of one setting, the first seed first.

    Raises UserError where none stayed finite.
    """
    finite: dict[int, TuningScores] = {}
    for cell in cells:
        scores = cell.scores()
        if scores is not None and scores.accuracy is not None:
            finite[cell.seed] = scores
    if not finite:
        raise UserError(f"no seed of {cells[0].setting.words} stayed finite; give smaller --rates")
    by_seed = {seed: float(scores.accuracy or 0.0) for seed, scores in finite.items()}
    others = [accuracy for seed, accuracy in by_seed.items() if seed != cells[0].seed]
    labels_P = data.dev.labels_P
    right_SP = [np.asarray(scores.predicted) == labels_P for scores in finite.values()]
    majority_P = labels_P == data.majority
    return TunedSetting(
        setting=cells[0].setting,
        accuracies=list(by_seed.values()),
        non_finite_seeds=[cell.seed for cell in cells if cell.seed not in finite],
        accuracy=over_seeds(list(by_seed.values())),
        accuracy_of_other_seeds=over_seeds(others) if others else None,
        majority=float(majority_P.mean()),
        above_majority=over_rows(np.mean(right_SP, axis=0) - majority_P),
    )


def best_setting(cells: Sequence[TuningCell]) -> TuningSetting:
    """Returns the setting with the highest accuracy; of equal ones that of the lowest loss, then
    the earliest.

    Raises UserError where no cell stayed finite.
    """
    found = [(cell, scores) for cell in cells if (scores := cell.scores()) is not None]
    ranked = [
        (scores.accuracy, -(scores.nll_nats or 0.0), -number, cell.setting)
        for number, (cell, scores) in enumerate(found)
        if scores.accuracy is not None
    ]
    if not ranked:
        raise UserError("no cell of the search stayed finite; give smaller --rates")
    return max(ranked)[-1]
