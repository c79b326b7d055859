"""What came of one configuration over a ladder of rates and of more seeds at its best."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from normscope.measure import Sensitivity, lr_sensitivity

from .runs import Run, mean_finals


@dataclass(frozen=True, slots=True, kw_only=True)
class Climbed:
    """The ladder, whichever way its best rate is chosen: that is `best_lr`, and `at_best` its runs, one a seed."""

    peak_lrs: Sequence[float]
    ladder: Sequence[Sequence[Run]]
    """A row for each seed that climbed the ladder, a column for each rate."""

    @property
    def best_lr(self) -> float:
        raise NotImplementedError

    @property
    def at_best(self) -> Sequence[Run]:
        raise NotImplementedError

    @property
    def at_an_end(self) -> bool:
        """Whether the best rate is the ladder's first or last, so that a better one may lie beyond."""
        return self.best_lr in (self.peak_lrs[0], self.peak_lrs[-1])

    @property
    def finals(self) -> list[float]:
        """Last losses in nats at the best rate, one a seed."""
        return [run.final_nats for run in self.at_best]

    @property
    def mean_nats(self) -> float:
        return mean_finals(self.at_best)

    @property
    def sensitivity(self) -> Sensitivity:
        """As `measure.lr_sensitivity`, over the ladder."""
        losses = [[run.final_nats if run.finite else math.inf for run in row] for row in self.ladder]
        return lr_sensitivity(losses, [row[0].first_nats for row in self.ladder])


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfLadder(Climbed):
    """The best rate is the one whose mean over the ladder's seeds is lowest; the smaller of two that are equal."""

    best: Sequence[Run]
    """One a seed, at `best_lr`."""

    @property
    def best_lr(self) -> float:
        return best_rate(self.ladder, self.peak_lrs)

    @property
    def at_best(self) -> Sequence[Run]:
        return self.best


def best_rate(ladder: Sequence[Sequence[Run]], peak_lrs: Sequence[float]) -> float:
    """The rate with the lowest mean loss; the smaller of two that are equal."""
    means = [mean_finals(column) for column in zip(*ladder, strict=True)]
    return peak_lrs[means.index(min(means))]
