"""Short runs compared: at several rates about the one expected, and at one rate with longer and longer warm-ups."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from torch import nn

from ...measure.line import lowest
from ...measure.unchanged import restored
from .optimizers import Maker
from .rule import ProbeRule
from .short_run import (
    ShortRun,
    StageWatch,
    TrainingBatches,
    counting,
    least_spread,
    loss_after,
    mean_of_last,
    train_shortly,
    updates_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReading:
    """Of trainings at rates about an expected one, the same number below it as above.

    Spreads are log10 of the least spread between tokens on the way, of its start. They show what a loss cannot: a
    training that is about to be stuck at the frequencies of tokens learns those faster than any other.
    """

    optimizer: str
    lowest: float
    """Decades from the expected rate to the one whose loss is lowest at the end."""
    gain: float
    """Nats by which that loss is below the one before training."""
    spread_below: float
    """At the rate next below the expected one ..."""
    spread: float
    """... at the expected one ..."""
    spread_above: float
    """... and at the next above."""

    def values(self) -> Mapping[str, float]:
        """All numbers by name."""
        return {name: value for name, value in asdict(self).items() if name != "optimizer"}


def reading_of(trials: Sequence[ShortRun], updates: int, *, optimizer: str) -> ProbeReading:
    """What trainings at rising rates show, of which the middle one is at the expected rate.

    updates: of each; one that has not so many counts as failed.
    """
    middle = len(trials) // 2
    expected = math.log10(trials[middle].rate)
    losses = [loss_after(trial, updates) for trial in trials]
    below, here, above = (least_spread(trial) for trial in trials[middle - 1 : middle + 2])
    gain = trials[middle].losses[0] - min(losses)
    return ProbeReading(
        optimizer=optimizer,
        lowest=lowest([math.log10(trial.rate) - expected for trial in trials], losses),
        gain=gain if math.isfinite(gain) else 0.0,
        spread_below=below,
        spread=here,
        spread_above=above,
    )


LEAST_UPDATES = 30
"""Fewer than these tell nothing."""
PLACES = (-2, -1, 0, 1, 2)
"""Of the rates that are tried, in steps from the expected one."""
STEP = math.log10(4)
"""Decades from one to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the short trainings were, and what they say."""

    trials: tuple[ShortRun, ...]
    reading: ProbeReading
    best: float
    """log10 of the rate."""

    @property
    def updates_used(self) -> int:
        return updates_of(self.trials)


def trial_at(
    rate: float,
    model: nn.Module,
    batches: TrainingBatches,
    maker: Maker,
    *,
    updates: int,
    watch: StageWatch = lambda stage, done, total: None,
) -> ShortRun:
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
    batches: TrainingBatches,
    maker: Maker,
    *,
    updates: int,
    expected: float,
    rule: ProbeRule,
    watch: StageWatch = lambda stage, done, total: None,
) -> Probe:
    """Train `model` for so many updates in all, at rates about `expected`, and put its weights back bit for bit.

    expected: log10 of the rate that is foreseen without a training. watch: told of the stage, the updates that were
    made, and how many there are. Raises ValueError for too few updates, and where a forward pass or the loss raises.
    """
    each = length(updates)
    total = len(PLACES) * each
    told = counting(watch, "short trainings", total)
    trials: list[ShortRun] = []
    watch("short trainings", 0, total)
    with restored(model) as put_back:
        for place in PLACES:
            put_back()
            rate = 10 ** (expected + place * STEP)
            trials.append(train_shortly(model, batches, maker, rate=rate, updates=each, watch=told))
    reading = reading_of(trials, each, optimizer=maker.name)
    return Probe(trials=tuple(trials), reading=reading, best=expected + rule.beyond(reading))


LEAST_WARMUP, LONGER = 10, 2
"""The ladder's first warm-up in updates, and by which factor each is longer than the one before."""
LEAST_TAIL = 40
"""Updates at the whole rate after a warm-up, at least; else as many as it has."""
ALIVE = 0.1
"""Spread between tokens, of its start, that a training that is not about to be stuck has at its end."""
RISE_NATS = 0.1
"""By how much its loss may end above the lowest on the way."""
MARGIN = 4
"""How many times as long the warm-up is that is named: a short training sees only the first failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupSearch:
    """What was tried, from the shortest on."""

    trials: tuple[ShortRun, ...]
    shortest: int | None
    """That carried the rate in a short training; None where the longest that the budget allowed did not."""

    @property
    def named(self) -> int | None:
        """Updates that are advised."""
        return None if self.shortest is None else MARGIN * self.shortest

    @property
    def updates_used(self) -> int:
        return updates_of(self.trials)


def length_with_tail(warmup_updates: int) -> int:
    """Updates of the training that tests it."""
    return warmup_updates + max(LEAST_TAIL, warmup_updates)


def ladder(updates: int) -> tuple[int, ...]:
    """The warm-ups that so many updates in all are enough to try."""
    found: list[int] = []
    left, warmup = updates, LEAST_WARMUP
    while length_with_tail(warmup) <= left:
        found.append(warmup)
        left -= length_with_tail(warmup)
        warmup *= LONGER
    return tuple(found)


def shortest_warmup(
    model: nn.Module,
    batches: TrainingBatches,
    maker: Maker,
    *,
    rate: float,
    updates: int,
    watch: StageWatch = lambda stage, done, total: None,
) -> WarmupSearch:
    """Train with one warm-up after the other until one carries the rate; weights come back bit for bit.

    updates: of all these trainings together, at most. watch: told of the stage, the updates that were made, and
    how many there are at most. Raises ValueError where a forward pass or the loss raises.
    """
    tried: list[ShortRun] = []
    told = counting(watch, "warm-ups", sum(map(length_with_tail, ladder(updates))))
    with restored(model) as put_back:
        for warmup in ladder(updates):
            put_back()
            tried.append(
                train_shortly(
                    model,
                    batches,
                    maker,
                    rate=rate,
                    updates=length_with_tail(warmup),
                    warmup_updates=warmup,
                    watch=told,
                )
            )
            if carries(tried[-1]):
                return WarmupSearch(trials=tuple(tried), shortest=warmup)
    return WarmupSearch(trials=tuple(tried), shortest=None)


def outcome_of(trial: ShortRun) -> Literal["learns", "unsettled", "stuck"]:
    """What became of a training whose losses are finite, as `report.doctor.advice` has it."""
    if mean_of_last(trial.spreads) < ALIVE:
        return "stuck"
    return "learns" if carries(trial) else "unsettled"


def carries(trial: ShortRun) -> bool:
    """Whether at the end tokens are still told apart, and the loss is below its start and about the lowest so far."""
    last = mean_of_last(trial.losses)
    least = min(mean_of_last(trial.losses[:end]) for end in range(1, len(trial.losses) + 1))
    return mean_of_last(trial.spreads) >= ALIVE and last < trial.losses[0] and last <= least + RISE_NATS
