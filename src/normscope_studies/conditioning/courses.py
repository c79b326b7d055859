"""Reads what was seen of the gradients of trainings: their spread over blocks, and their stable
ranks.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.history.names import history_of, numbers_in
from normscope.measure import Estimate
from normscope.placement import named

from ..engine.estimates import Floats, estimate
from ..engine.judging import learned
from ..engine.ladders import Ladder


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCourse:
    """One training. NaN stands where gradients are 0, as ReZero's are before its gates open."""

    updates: Sequence[int]
    """The updates whose gradients' norms were looked at."""
    spread: Floats
    """Largest over smallest norm of a block's gradients, at each of them."""
    looked_at: Sequence[int]
    """The updates after which stable ranks were looked at."""
    rank: Floats
    """The mean stable rank of all blocks, at each of these."""

    @property
    def first_spread(self) -> float:
        """The spread at the first look with gradients."""
        return float(self.spread[np.isfinite(self.spread)][0])

    @property
    def worst_spread(self) -> float:
        """The largest of all looks."""
        return float(np.nanmax(self.spread))

    @property
    def last_spread(self) -> float:
        return float(self.spread[-1])

    @property
    def first_rank(self) -> float:
        """The rank at the first look with gradients."""
        return float(self.rank[np.isfinite(self.rank)][0])

    @property
    def worst_rank(self) -> float:
        """The smallest of all looks."""
        return float(np.nanmin(self.rank))

    @property
    def last_rank(self) -> float:
        return float(self.rank[-1])


def course_of(
    events: Iterable[Mapping[str, Any]],
    looked_at: Sequence[int],
    ranks: Sequence[Sequence[float | None]],
) -> GradientCourse:
    """Returns what the metrics of a run and its checkpoints say of its gradients.

    ranks: as `measure.stable_ranks` gives them.
    """
    rows = [(event["update"], numbers_in(event)) for event in events if "update" in event]
    norms = history_of("a run", rows).of_sublayers("gradient_norm")
    squares: dict[str, dict[int, float]] = {}
    for place, series in norms.items():
        # "decoder/block_03/attention": sub-layers of one block are taken together.
        block = squares.setdefault(place.rpartition("/")[0], {})
        for update, norm in zip(series.updates, series.values, strict=True):
            block[update] = block.get(update, 0.0) + norm**2
    updates = sorted(next(iter(squares.values())))
    squares_UL = []
    for update in updates:
        squares_UL.append([block[update] for block in squares.values()])
    norms_UL = np.sqrt(squares_UL)
    return GradientCourse(
        updates=updates,
        spread=_spread(norms_UL),
        looked_at=looked_at,
        rank=np.array([_mean(row) for row in ranks]),
    )


def _spread(norms_UL: Floats) -> Floats:
    least = norms_UL.min(1)
    unknown = np.full(len(least), np.nan)
    found: Floats = np.divide(norms_UL.max(1), least, out=unknown, where=least > 0)
    return found


def _mean(row: Sequence[float | None]) -> float:
    known = [value for value in row if value is not None]
    return sum(known) / len(known) if known else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGradients:
    """The trainings of a placement at its best rate, one a seed."""

    placement: str
    ladder: Ladder
    courses: Sequence[GradientCourse]
    """Empty where a training did not stay finite."""

    @property
    def title(self) -> str:
        return named(self.placement).title

    def learned(self, unigram_nats: float) -> bool:
        """Returns whether it ends below the unigram baseline, with all of its trainings finite."""
        return bool(self.courses) and learned(self.ladder.mean_nats, unigram_nats)

    def mean(self, of: Callable[[GradientCourse], float]) -> Estimate:
        """Returns the mean logarithm of a number of each course."""
        return estimate([math.log(of(course)) for course in self.courses])


WORSE: Mapping[str, Callable[[GradientCourse], float]] = {
    "spread, at the start": lambda one: one.first_spread,
    "spread, worst": lambda one: one.worst_spread,
    "spread, at the end": lambda one: one.last_spread,
    "stable rank, at the start": lambda one: 1 / one.first_rank,
    "stable rank, worst": lambda one: 1 / one.worst_rank,
    "stable rank, at the end": lambda one: 1 / one.last_rank,
}
"""Numbers of a course by what they are, each larger where gradients are conditioned worse: of ranks
the inverse."""
WORST = ("spread, worst", "stable rank, worst")
"""The two numbers that are asked of a whole training."""


def times_worse(one: PlacementGradients, other: PlacementGradients, what: str) -> Estimate:
    """Returns how many times worse conditioned one is than another, as a logarithm.

    what: of `WORSE`; over seeds in pairs.
    """
    of = WORSE[what]
    pairs = zip(one.courses, other.courses, strict=True)
    return estimate([math.log(of(a) / of(b)) for a, b in pairs])
