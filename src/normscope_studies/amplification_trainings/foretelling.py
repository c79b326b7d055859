"""Foretelling stuck trainings from the change of the first update, and how well that is done."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from normscope.adapters.scikit_learn import logistic, ridge
from normscope.doctor.advise.rule import ADAM, LinearFit
from normscope.evidence.estimates import jackknife, rank_correlation
from normscope.measure import Estimate
from normscope.optim import OPTIMIZERS

from ..advice.cases import rate_of
from ..advice.judge import area_under_curve
from ..advice.ladder import nats
from .ways import CaseLook, Way

_HALF_RUNG = 0.5 * math.log10(2)
_MOST_SHARE = 1.5
"""Losses at the end are shares of the unigram entropy, and those beyond this count as it: how far a training that
diverged has gone says nothing."""


@dataclass(frozen=True)
class Forecast:
    """What one way foretells of a case, rung by rung, fitted to cases of other families."""

    looked: CaseLook
    scores: tuple[float, ...]
    """Log odds of being stuck, of every rung in rising order."""
    losses: tuple[float, ...]
    """The loss at the end, as a share of the unigram entropy."""

    @cached_property
    def steps(self) -> list[int]:
        return sorted(self.looked.known.outcomes)

    @property
    def every(self) -> list[tuple[float, bool]]:
        """Score and whether it was stuck, of all trainings; those below the best rate were not."""
        labels = self.looked.known.labels()
        return [(score, labels.get(step, False)) for step, score in zip(self.steps, self.scores, strict=True)]

    @property
    def upper(self) -> list[tuple[float, bool]]:
        """The same of those at and above the best rate."""
        labels = self.looked.known.labels()
        return [(score, labels[step]) for step, score in zip(self.steps, self.scores, strict=True) if step in labels]

    @property
    def edge(self) -> float:
        """log10 of the rate from which on it is likelier stuck than not; half a rung beyond the ladder at most."""
        places = [math.log10(rate_of(step)) for step in self.steps]
        if self.scores[0] > 0:
            return places[0] - _HALF_RUNG
        for (low, below), (high, above) in pairwise(zip(places, self.scores, strict=True)):
            if above > 0:
                return low + (high - low) * below / (below - above)
        return places[-1] + _HALF_RUNG

    @property
    def ends(self) -> list[tuple[float, float]]:
        """The loss at the end that was foretold, and that was found, as shares of the unigram entropy."""
        return list(zip(self.losses, shares(self.looked), strict=True))


def shares(looked: CaseLook) -> list[float]:
    """The losses at the end over the unigram entropy, in rising order of the rate."""
    known = looked.known
    return [min(nats(known.outcomes[step]) / known.unigram_nats, _MOST_SHARE) for step in sorted(known.outcomes)]


def odds(way: Way, fit: Sequence[CaseLook]) -> LinearFit:
    """Log odds of being stuck, by a regression over the trainings of those that the way applies to."""
    fit = [one for one in fit if way.applies(one)]
    names, x = _rows(way, fit)
    found = logistic(x, _stuck(fit))
    weights = dict(zip(names, map(float, found.weights_D), strict=True))
    kinds = {kind: weights.pop(f"optimizer {kind}") for kind in _KINDS}
    # An optimiser without a constant of its own is taken for Adam, which therefore has none.
    optimizers = {name: kinds[one.bears_as or name] - kinds[ADAM] for name, one in OPTIMIZERS.items()}
    return LinearFit(offset=found.offset + kinds[ADAM], weights=weights, optimizers=optimizers)


def foretold(way: Way, fit: Sequence[CaseLook], asked: Sequence[CaseLook]) -> list[Forecast]:
    """Of cases that it applies to, by regressions over those of the fitted that it applies to."""
    fit, asked = ([one for one in some if way.applies(one)] for some in (fit, asked))
    if not asked:
        return []
    (_, x), (_, places) = _rows(way, fit), _rows(way, asked)
    ends = np.array([share for one in fit for share in shares(one)])
    return _by_case(asked, logistic(x, _stuck(fit))(places), ridge(_bent(x), ends)(_bent(places)))


def left_out_foretold(way: Way, looked: Sequence[CaseLook]) -> list[Forecast]:
    """Each family by a fit to the others."""
    found = []
    for family in dict.fromkeys(one.known.case.family for one in looked):
        own = [one for one in looked if one.known.case.family == family]
        found += foretold(way, [one for one in looked if one.known.case.family != family], own)
    return found


def without_constants(way: Way, asked: Sequence[CaseLook]) -> list[Forecast]:
    """By the way's one number alone, where it has one."""
    if not way.alone:
        return []
    asked = [one for one in asked if way.applies(one)]
    scores = np.array([way.features(one, step)[way.alone] for one, step in _trainings(asked)])
    return _by_case(asked, scores, np.full(len(scores), math.nan))


_KINDS = sorted({one.bears_as or name for name, one in OPTIMIZERS.items()})
"""Optimisers with a constant of their own."""


def _trainings(looked: Sequence[CaseLook]) -> list[tuple[CaseLook, int]]:
    return [(one, step) for one in looked for step in sorted(one.known.outcomes)]


def _stuck(looked: Sequence[CaseLook]) -> NDArray[np.bool_]:
    return np.array([one.known.labels().get(step, False) for one, step in _trainings(looked)])


def _rows(way: Way, looked: Sequence[CaseLook]) -> tuple[list[str], NDArray[np.float64]]:
    """Names of the columns, and a row a training."""
    tables = []
    for one, step in _trainings(looked):
        name = one.known.case.optimizer
        kind = OPTIMIZERS[name].bears_as or name
        tables.append({**way.features(one, step), **{f"optimizer {each}": float(each == kind) for each in _KINDS}})
    return list(tables[0]), np.array([list(table.values()) for table in tables], dtype=np.float64)


def _bent(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """With squares: losses are lowest in the middle of a ladder."""
    return np.concatenate([x, x**2], axis=1)


def _by_case(asked: Sequence[CaseLook], scores: NDArray[np.float64], losses: NDArray[np.float64]) -> list[Forecast]:
    found, at = [], 0
    for one in asked:
        end = at + len(one.known.outcomes)
        found.append(
            Forecast(looked=one, scores=tuple(map(float, scores[at:end])), losses=tuple(map(float, losses[at:end])))
        )
        at = end
    return found


_ScoredPairs = Callable[[Forecast], list[tuple[float, bool]]]


def upper(one: Forecast) -> list[tuple[float, bool]]:
    return one.upper


def every(one: Forecast) -> list[tuple[float, bool]]:
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


def skill(found: Sequence[Forecast]) -> Skill:
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


def area(found: Sequence[Forecast], pairs: _ScoredPairs) -> Estimate:
    # The trainings of one case are not independent: cases are left out as a whole.
    return jackknife(found, lambda some: _area(some, pairs))


def gained(found: Sequence[Forecast], other: Sequence[Forecast], pairs: _ScoredPairs) -> Estimate:
    """How much larger the area of the first is, on the cases that both foretell."""
    by_name = {one.looked.name: one for one in other}
    both = [(one, by_name[one.looked.name]) for one in found if one.looked.name in by_name]
    return jackknife(both, lambda some: _area([a for a, _ in some], pairs) - _area([b for _, b in some], pairs))


def _area(found: Sequence[Forecast], pairs: _ScoredPairs) -> float:
    together = [pair for one in found for pair in pairs(one)]
    return area_under_curve([score for score, _ in together], [bad for _, bad in together])


def _rank(found: Sequence[Forecast]) -> tuple[float, float, float]:
    edges = [(one.edge, one.looked.known.stuck) for one in found]
    pairs = [(edge, stuck) for edge, stuck in edges if stuck is not None]
    return rank_correlation([edge for edge, _ in pairs], [stuck for _, stuck in pairs])


def _explained(found: Sequence[Forecast]) -> float:
    told, ended = np.array([pair for one in found for pair in one.ends]).T
    return float(1 - ((ended - told) ** 2).sum() / ((ended - ended.mean()) ** 2).sum())
