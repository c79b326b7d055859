"""How well each way foretells: trainings that are stuck, the largest rate that trains, and the loss at the end."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from normscope.evidence.estimates import jackknife, rank_correlation
from normscope.measure import Estimate

from ..advice.judge import area_under_curve
from .foretelling import Foretold

Pairs = Callable[[Foretold], list[tuple[float, bool]]]


def upper(one: Foretold) -> list[tuple[float, bool]]:
    return one.upper


def every(one: Foretold) -> list[tuple[float, bool]]:
    return one.every


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Of one way on one set of cases; intervals are over cases; but for the rank's by leaving out one at a time."""

    cases: int
    upper: Estimate
    """Area under the ROC curve over trainings at and above each case's best rate."""
    every: Estimate
    """Over all trainings of the ladders."""
    rank: tuple[float, float, float]
    """Spearman's correlation of the largest rate that trains, foretold and found, with its 95 % interval."""
    factor: float
    """The median factor between the two."""
    within_3: int
    bounded: int
    """Cases whose ladder reached a rate from which on all were stuck, of which these three are."""
    explained: Estimate
    """R² of the loss at the end."""


def skill(found: Sequence[Foretold]) -> Skill:
    edges = [(one.edge, one.looked.known.stuck) for one in found]
    off = [abs(edge - stuck) for edge, stuck in edges if stuck is not None]
    return Skill(
        cases=len(found),
        upper=area(found, upper),
        every=area(found, every),
        rank=_rank(found),
        factor=10 ** float(np.median(off)) if off else math.nan,
        within_3=sum(one <= math.log10(3) for one in off),
        bounded=len(off),
        explained=jackknife(found, _explained),
    )


def area(found: Sequence[Foretold], pairs: Pairs) -> Estimate:
    # The trainings of one case are not independent: cases are left out as a whole.
    return jackknife(found, lambda some: _area(some, pairs))


def gained(found: Sequence[Foretold], other: Sequence[Foretold], pairs: Pairs) -> Estimate:
    """How much larger the area of the first is, on the cases that both foretell."""
    by_name = {one.looked.name: one for one in other}
    both = [(one, by_name[one.looked.name]) for one in found if one.looked.name in by_name]
    return jackknife(both, lambda some: _area([a for a, _ in some], pairs) - _area([b for _, b in some], pairs))


def _area(found: Sequence[Foretold], pairs: Pairs) -> float:
    together = [pair for one in found for pair in pairs(one)]
    return area_under_curve([score for score, _ in together], [bad for _, bad in together])


def _rank(found: Sequence[Foretold]) -> tuple[float, float, float]:
    edges = [(one.edge, one.looked.known.stuck) for one in found]
    pairs = [(edge, stuck) for edge, stuck in edges if stuck is not None]
    return rank_correlation([edge for edge, _ in pairs], [stuck for _, stuck in pairs])


def _explained(found: Sequence[Foretold]) -> float:
    told, ended = np.array([pair for one in found for pair in one.ends]).T
    return float(1 - ((ended - told) ** 2).sum() / ((ended - ended.mean()) ** 2).sum())
