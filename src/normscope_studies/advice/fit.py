"""The law of known rates without one family of ladders, how short trainings are read, and how good both are.

Each is fitted to the other families and judged on the one that was left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from normscope.choosing.rates import ADAM, KnownRate, RateLaw, known_rates
from normscope.doctor.advise.probe import ProbeReading, length
from normscope.doctor.advise.rule import LinearFit, NamedFacts, ProbeRule
from normscope.errors import UserError
from normscope.measure.line import lowest
from normscope.optim import OPTIMIZERS

from .cases import rate_of
from .ladder import REGRET_NATS, TrainedCase

RIDGE = 1.0
"""Holds the weights of standardised readings, and the constants of rarely seen optimisers, near 0."""
CONFIDENCE = 0.9
GROUPS = {ADAM: ADAM} | {name: one.bears_as for name, one in OPTIMIZERS.items() if one.bears_as}
"""AdamW moves as Adam does; the others have a constant of their own."""


def no_rule(updates: int, horizon_updates: int) -> ProbeRule:
    """One that reads nothing. updates: of a whole probe."""
    return ProbeRule(
        beyond=LinearFit(offset=0.0, weights={}, optimizers={}),
        low=0.0,
        high=0.0,
        below=0.0,
        above=0.0,
        updates=updates,
        trial_updates=length(updates),
        horizon_updates=horizon_updates,
        regret_nats=REGRET_NATS,
        confidence=CONFIDENCE,
    )


def law_without(known: Sequence[TrainedCase]) -> RateLaw:
    """The law of recipes and of these ladders, without any other of ours.

    Raises UserError without a case that learned.
    """
    if not known:
        raise UserError("too few cases learned at any rate: train longer (--set updates=300)")
    ours = [KnownRate(family=one.case.family, facts=one.facts, rate=10**one.best, published=False) for one in known]
    return RateLaw.fitted([*(one for one in known_rates() if one.published), *ours])


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


def fitted_probe(cases: Sequence[CaseProbe], updates: int, horizon_updates: int) -> ProbeRule:
    """Least squares with a ridge; the interval from left-out families. updates: of a whole probe."""
    by_case = {one.known.case: one for one in cases}
    off = []
    for rest, left in left_out([one.known for one in cases]):
        without = _beyond([by_case[one.case] for one in rest])
        off += [one.best - by_case[one.case].expected - without(by_case[one.case].reading) for one in left]
    good = [(one.known.best - one.known.good[0], one.known.good[1] - one.known.best) for one in cases]
    return replace(
        no_rule(updates, horizon_updates),
        beyond=_beyond(cases),
        low=quantile(off, (1 - CONFIDENCE) / 2),
        high=quantile(off, (1 + CONFIDENCE) / 2),
        below=float(np.median([below for below, _ in good])),
        above=float(np.median([above for _, above in good])),
    )


def _beyond(cases: Sequence[CaseProbe]) -> LinearFit:
    return linear([one.reading for one in cases], READ, [one.known.best - one.expected for one in cases], RIDGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRate:
    """A rate that was named for a case, by known rates, by a probe or by a range test."""

    known: TrainedCase
    rate: float | None
    """log10; None where no rate was named."""
    interval: tuple[float, float] | None = None
    """log10 of its ends."""

    @property
    def off(self) -> float | None:
        """Decades between it and the best rate."""
        return None if self.rate is None else abs(self.rate - self.known.best)

    def within(self, factor: float) -> bool:
        return self.off is not None and self.off <= math.log10(factor)

    @property
    def stuck(self) -> bool:
        """Whether it lies beyond the rate from which on trainings of the ladder are stuck."""
        return self.rate is not None and self.known.stuck is not None and self.rate > self.known.stuck

    @property
    def good(self) -> bool:
        """Whether it lies within the range about the best rate whose losses are within the regret."""
        low, high = self.known.good
        return self.rate is not None and low <= self.rate <= high

    @property
    def covered(self) -> bool:
        return self.interval is not None and self.interval[0] <= self.known.best <= self.interval[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One case, and what each way of asking named for it, by constants that were fitted without its family."""

    known: TrainedCase
    usual: NamedRate
    """By known rates."""
    probe: NamedRate
    finders: Mapping[str, NamedRate]
    """By the tool's name: what a range test with the same number of updates would have made it suggest."""


SHARES = (0.05, 0.1, 0.15, 0.3, 0.5, 0.75, 1.0)
"""Of the updates of a training."""
_LAST = 6
"""Losses of batches that are averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialLadder:
    """What is known after so many updates of every training of a ladder."""

    updates: int
    """Of each."""
    ladder_updates: int
    """Of all trainings of a ladder together: the median over cases."""
    off: tuple[float, ...]
    """Decades from what is read to the best rate, a case each: from the lowest training loss, and by how much that is
    off in the median of the other families."""

    def within(self, factor: float) -> int:
        """In how many cases."""
        return sum(abs(off) <= math.log10(factor) for off in self.off)


def partly(known: Sequence[TrainedCase], horizon_updates: int) -> list[PartialLadder]:
    """By updates, from few to all. known: cases that learned, of two families or more."""
    found = []
    for updates in (round(share * horizon_updates) for share in SHARES):
        read = {one.case: _read(one, updates) - one.best for one in known}
        off = []
        for rest, left in left_out(known):
            usual = float(np.median([read[one.case] for one in rest]))
            off += [read[one.case] - usual for one in left]
        rungs = float(np.median([len(one.outcomes) for one in known]))
        found.append(PartialLadder(updates=updates, ladder_updates=round(rungs * updates), off=tuple(off)))
    return found


def _read(known: TrainedCase, updates: int) -> float:
    """log10 of the rate whose training loss is lowest then, by a parabola through it and its neighbours."""
    steps = sorted(known.outcomes)
    rates = [math.log10(rate_of(step)) for step in steps]
    losses = [_loss(known.outcomes[step]["train_nats"][:updates], updates) for step in steps]
    return lowest(rates, losses)


def _loss(losses: Sequence[float | None], updates: int) -> float:
    """Mean of the last ones; infinite where the training ended before, with None."""
    last = [loss for loss in losses[-_LAST:] if loss is not None]
    return sum(last) / _LAST if len(losses) == updates and len(last) == _LAST else math.inf
