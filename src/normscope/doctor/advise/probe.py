"""Advice that looks: short real trainings at a few rates about the one that is expected."""

import math
from dataclasses import dataclass

from torch import nn

from ...measure.unchanged import restored
from .optimizers import Maker
from .reading import Reading, reading_of
from .rule import ProbeRule
from .trial import Batches, Trial, Watch, counting, train_shortly, updates_of

LEAST_UPDATES = 30
"""Fewer than these tell nothing."""
PLACES = (-2, -1, 0, 1, 2)
"""Of the rates that are tried, in steps from the expected one."""
STEP = math.log10(4)
"""Decades from one to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the short trainings were, and what they say."""

    trials: tuple[Trial, ...]
    reading: Reading
    best: float
    """log10 of the rate."""

    @property
    def updates_used(self) -> int:
        return updates_of(self.trials)


def trial_at(
    rate: float,
    model: nn.Module,
    batches: Batches,
    maker: Maker,
    *,
    updates: int,
    watch: Watch = lambda stage, done, total: None,
) -> Trial:
    """One short training, after which every weight is what it was; watch: as of a probe."""
    with restored(model):
        told = counting(watch, "your rate", updates)
        return train_shortly(model, batches, maker, rate=rate, updates=updates, watch=told)


def length(updates: int) -> int:
    """Updates of each training, for so many in all. Raises ValueError for too few."""
    if updates < LEAST_UPDATES:
        raise ValueError(f"a probe needs at least {LEAST_UPDATES} updates, got {updates}")
    return updates // len(PLACES)


def probe(
    model: nn.Module,
    batches: Batches,
    maker: Maker,
    *,
    updates: int,
    expected: float,
    rule: ProbeRule,
    watch: Watch = lambda stage, done, total: None,
) -> Probe:
    """Train `model` for so many updates in all, at rates about `expected`, and put its weights back bit for bit.

    expected: log10 of the rate that is foreseen without a training. watch: told of the stage, the updates that were
    made, and how many there are. Raises ValueError for too few updates, and where a forward pass or the loss raises.
    """
    each = length(updates)
    total = len(PLACES) * each
    told = counting(watch, "short trainings", total)
    trials: list[Trial] = []
    watch("short trainings", 0, total)
    with restored(model) as put_back:
        for place in PLACES:
            put_back()
            rate = 10 ** (expected + place * STEP)
            trials.append(train_shortly(model, batches, maker, rate=rate, updates=each, watch=told))
    reading = reading_of(trials, each, optimizer=maker.name)
    return Probe(trials=tuple(trials), reading=reading, best=expected + rule.beyond(reading))
