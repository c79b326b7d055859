"""Fitting the doctor's rule to trainings, and how far it is off on a family that it was not fitted to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from normscope.doctor.advise.probe import ProbeReading
from normscope.doctor.advise.rule import ADAM, FittedTo, LinearFit, NamedFacts, ProbeRule, RateRule
from normscope.errors import UserError
from normscope.optim import OPTIMIZERS

from .ladder import REGRET_NATS, TrainedCase

FACTS = ("reach", "fading", "rise", "normed_sums", "normed_depth", "normed_branches")
"""What the best rate is foreseen from."""
NEARNESS = ("reach", "fading", "rise", "sublayers", "width", "normed_sums", "normed_branches")
"""What tells how far a model is from those that were trained."""
RIDGE = 1.0
"""Holds the weights of standardised facts, and the constants of rarely seen optimisers, near 0."""
CAUTION = 0.1
"""Decades by which the rate that is named lies below the one that is foreseen: a rate too high costs more than one too
low."""
CONFIDENCE = 0.9
GROUPS = {ADAM: ADAM} | {name: one.bears_as for name, one in OPTIMIZERS.items() if one.bears_as}
"""AdamW moves as Adam does; the others have a constant of their own."""
NO_PROBE = ProbeRule(beyond=LinearFit(offset=0.0, weights={}, optimizers={}), low=0.0, high=0.0, updates=0)


def fitted(known: Sequence[TrainedCase], *, horizon_updates: int) -> RateRule:
    """Constants from cases that learned; intervals from leaving out one family at a time. Of probes it says
    nothing yet.

    Raises UserError for cases of fewer than two families.
    """
    usable = [one for one in known if one.learned]
    if len(families(usable)) < 2:
        raise UserError(
            f"{len(usable)} of {len(known)} cases learned at any rate, and the rule needs cases of two families; train "
            "longer (--set updates=300)"
        )
    best, stuck = _best(usable), _stuck(usable)
    best = replace(best, offset=best.offset - CAUTION)
    off = [one.best - _best(rest)(one.facts) + CAUTION for rest, left in left_out(usable) for one in left]
    good = [one.good for one in usable]
    return RateRule(
        best=best,
        stuck=stuck,
        low=quantile(off, (1 - CONFIDENCE) / 2),
        high=quantile(off, (1 + CONFIDENCE) / 2),
        below=float(np.median([one.best - low for one, (low, _) in zip(usable, good, strict=True)])),
        above=float(np.median([high - one.best for one, (_, high) in zip(usable, good, strict=True)])),
        deviation=_deviation(usable),
        tested=_tested(usable),
        probe=NO_PROBE,
        optimizers=tuple(sorted({one.case.optimizer for one in usable})),
        horizon_updates=horizon_updates,
        regret_nats=REGRET_NATS,
        confidence=CONFIDENCE,
    )


def families(known: Sequence[TrainedCase]) -> list[str]:
    return list(dict.fromkeys(one.case.family for one in known))


def left_out(known: Sequence[TrainedCase]) -> list[tuple[list[TrainedCase], list[TrainedCase]]]:
    """Each family apart: the cases of all others, and its own."""
    return [
        ([one for one in known if one.case.family != family], [one for one in known if one.case.family == family])
        for family in families(known)
    ]


def linear(seen: Sequence[NamedFacts], names: Sequence[str], targets: Sequence[float], ridge: float) -> LinearFit:
    """Least squares with a ridge, over standardised values of these names and a constant of each optimiser."""
    values = np.array([[one.values()[name] for name in names] for one in seen])
    means, scales = values.mean(0), values.std(0) + 1e-9
    others = sorted({one.optimizer for one in seen if one.optimizer not in GROUPS})
    own = np.array([[float(one.optimizer == name) for name in others] for one in seen]).reshape(len(seen), -1)
    design = np.concatenate([np.ones((len(seen), 1)), (values - means) / scales, own], axis=1)
    penalty = np.diag([0.0] + [ridge] * (design.shape[1] - 1))
    solved: NDArray[np.float64] = np.linalg.solve(design.T @ design + penalty, design.T @ np.array(targets))
    weights = solved[1 : 1 + len(names)] / scales
    return LinearFit(
        offset=float(solved[0] - weights @ means),
        weights=dict(zip(names, map(float, weights), strict=True)),
        optimizers=dict.fromkeys(GROUPS, 0.0) | dict(zip(others, map(float, solved[1 + len(names) :]), strict=True)),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The conformal one: of the order statistics the one at or outside `share` of so many values and one more."""
    ordered = sorted(values)
    place = share * (len(ordered) + 1)
    index = math.floor(place) - 1 if share < 0.5 else math.ceil(place) - 1
    return float(ordered[min(max(index, 0), len(ordered) - 1)])


def _best(known: Sequence[TrainedCase]) -> LinearFit:
    return linear([one.facts for one in known], FACTS, [one.best for one in known], RIDGE)


def _stuck(known: Sequence[TrainedCase]) -> LinearFit:
    """Of those whose ladder reached a rate that is stuck."""
    bounded = [(one, one.stuck) for one in known if one.stuck is not None]
    if not bounded:
        return replace(_best(known), offset=_best(known).offset + 1)
    return linear([one.facts for one, _ in bounded], FACTS, [rate for _, rate in bounded], RIDGE)


def _deviation(known: Sequence[TrainedCase]) -> float:
    """The logistic's scale under which the trainings of left-out families are likeliest."""
    runs = [
        (math.log10(rate) - _stuck(rest)(one.facts), bad)
        for rest, left in left_out(known)
        for one in left
        for rate, bad in one.labelled_rates()
    ]
    distances, bad = np.array([x for x, _ in runs]), np.array([y for _, y in runs])
    scales = 10 ** np.linspace(-2, 0.5, 251)
    scores = [float(np.logaddexp(0, np.where(bad, -distances, distances) / scale).sum()) for scale in scales]
    return float(scales[int(np.argmin(scores))])


def _tested(known: Sequence[TrainedCase]) -> FittedTo:
    """The limit is the largest distance between a case and the nearest of another family."""
    values = [one.facts.values() for one in known]
    scales = {name: float(np.std([value[name] for value in values])) or 1.0 for name in NEARNESS}

    def of(some: Sequence[TrainedCase]) -> FittedTo:
        points = tuple({name: one.facts.values()[name] for name in NEARNESS} for one in some)
        return FittedTo(scales=scales, points=points, limit=0.0)

    far = [of(rest).distance(one.facts) for rest, left in left_out(known) for one in left]
    return replace(of(known), limit=max(far))


READ = ("lowest", "gain", "spread_below", "spread", "spread_above")
"""What the best rate is read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseProbe:
    """A case, the rate that its family's rule expects without a training, and what short trainings about it show."""

    known: TrainedCase
    expected: float
    """log10."""
    reading: ProbeReading

    @property
    def family(self) -> str:
        return self.known.case.family

    def best(self, rule: ProbeRule) -> float:
        """log10 of the rate that the probe names."""
        return self.expected + rule.beyond(self.reading)


def fitted_probe(cases: Sequence[CaseProbe], updates: int) -> ProbeRule:
    """Least squares with a ridge; the interval from left-out families. updates: of a whole probe."""
    rule = _fitted(cases, updates)
    by_case = {one.known.case: one for one in cases}
    off = []
    for rest, left in left_out([one.known for one in cases]):
        without = _fitted([by_case[one.case] for one in rest], updates)
        off += [one.best - by_case[one.case].best(without) for one in left]
    return replace(rule, low=quantile(off, (1 - CONFIDENCE) / 2), high=quantile(off, (1 + CONFIDENCE) / 2))


def _fitted(cases: Sequence[CaseProbe], updates: int) -> ProbeRule:
    beyond = linear([one.reading for one in cases], READ, [one.known.best - one.expected for one in cases], RIDGE)
    return replace(NO_PROBE, beyond=beyond, updates=updates)
