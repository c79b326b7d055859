"""How good advice is on families that it was not fitted to, and what unfinished ladders say of the best rate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from normscope.measure.line import lowest

from .cases import rate_of
from .fit import left_out
from .ladder import TrainedCase


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
