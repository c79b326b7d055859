"""How good advice is on trainings that it was not fitted to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...doctor.advise.calibration import Calibration
from ...measure import Estimate
from ..protocol.evidence import estimate
from .cases import rate_of
from .fit import Known
from .search import Outcome, learned

FACTOR = 3.0
"""Within which of the largest rate that trained the safe rate is to lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One case of the evaluation."""

    known: Known
    foreseen: float
    """Rate at which training is as likely to diverge as not."""
    safe_rate: float
    safe: Outcome
    """What became of the training at the safe rate."""
    chances: Mapping[int, float]
    """That each step of the ladder diverges."""

    @property
    def safe_trained(self) -> bool:
        return learned(self.safe)

    @property
    def largest_rate(self) -> float | None:
        """The largest rate that learned, the safe one counted in; None where none did."""
        ladder = [] if self.known.largest is None else [rate_of(self.known.largest)]
        return max([*ladder, *([self.safe_rate] if self.safe_trained else [])], default=None)

    @property
    def times_below(self) -> float | None:
        """The largest rate that learned over the safe rate."""
        return None if self.largest_rate is None else self.largest_rate / self.safe_rate

    @property
    def within_factor(self) -> bool:
        return self.times_below is not None and 1 / FACTOR <= self.times_below <= FACTOR


def judged(known: Known, constants: Calibration, safe: Outcome) -> Judged:
    return Judged(
        known=known,
        foreseen=10 ** constants.foreseen(known.facts),
        safe_rate=constants.safe_rate(known.facts),
        safe=safe,
        chances={step: constants.chance(known.facts, rate_of(step)) for step in known.outcomes},
    )


def area_under_curve(scores: Sequence[float], bad: Sequence[bool]) -> float:
    """Of the receiver operating characteristic: how often a bad one scores above a good one, ties half (Mann–Whitney).

    NaN where all are of one kind.
    """
    high = np.array([score for score, flag in zip(scores, bad, strict=True) if flag])
    low = np.array([score for score, flag in zip(scores, bad, strict=True) if not flag])
    if not len(high) or not len(low):
        return math.nan
    return float(np.mean((high[:, None] > low) + 0.5 * (high[:, None] == low)))


def separation(cases: Sequence[Judged]) -> tuple[float, int, int]:
    """Area under the curve over all trainings that diverged or learned, and how many of each."""
    scores, bad = [], []
    for one in cases:
        for step, diverged in one.known.labels().items():
            scores.append(one.chances[step])
            bad.append(diverged)
    return area_under_curve(scores, bad), sum(bad), len(bad) - sum(bad)


def separation_interval(cases: Sequence[Judged]) -> Estimate:
    """The area with its 95 % interval, by leaving out one case at a time (Tukey's jackknife): the trainings of one case
    are not independent. NaN where without some case all trainings are of one kind."""
    whole, *_ = separation(cases)
    count = len(cases)
    without = [separation([other for other in cases if other is not one])[0] for one in cases]
    return estimate([count * whole - (count - 1) * area for area in without])
