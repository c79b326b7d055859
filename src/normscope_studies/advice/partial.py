"""How long one must look: what the trainings of a whole ladder say of the best rate before they are at their end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from normscope.measure.line import lowest

from .cases.case import rate_of
from .fit import left_out
from .truth import Known

SHARES = (0.05, 0.1, 0.15, 0.3, 0.5, 0.75, 1.0)
"""Of the updates of a training."""
_LAST = 6
"""Losses of batches that are averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partly:
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


def partly(known: Sequence[Known], horizon_updates: int) -> list[Partly]:
    """By updates, from few to all. known: cases that learned, of two families or more."""
    found = []
    for updates in (round(share * horizon_updates) for share in SHARES):
        read = {one.case: _read(one, updates) - one.best for one in known}
        off = []
        for rest, left in left_out(known):
            usual = float(np.median([read[one.case] for one in rest]))
            off += [read[one.case] - usual for one in left]
        rungs = float(np.median([len(one.outcomes) for one in known]))
        found.append(Partly(updates=updates, ladder_updates=round(rungs * updates), off=tuple(off)))
    return found


def _read(known: Known, updates: int) -> float:
    """log10 of the rate whose training loss is lowest then, by a parabola through it and its neighbours."""
    steps = sorted(known.outcomes)
    rates = [math.log10(rate_of(step)) for step in steps]
    losses = [_loss(known.outcomes[step]["train_nats"][:updates], updates) for step in steps]
    return lowest(rates, losses)


def _loss(losses: Sequence[float | None], updates: int) -> float:
    """Mean of the last ones; infinite where the training ended before, with None."""
    last = [loss for loss in losses[-_LAST:] if loss is not None]
    return sum(last) / _LAST if len(losses) == updates and len(last) == _LAST else math.inf
