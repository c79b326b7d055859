"""The shortest warm-up of a ladder that carries a rate, by a short training with each."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from ...measure.unchanged import restored
from .optimizers import Maker
from .trial import Batches, Trial, Watch, counting, mean_of_last, train_shortly, updates_of

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
class Warmups:
    """What was tried, from the shortest on."""

    trials: tuple[Trial, ...]
    shortest: int | None
    """That carried the rate in a short training; None where the longest that the budget allowed did not."""

    @property
    def named(self) -> int | None:
        """Updates that are advised."""
        return None if self.shortest is None else MARGIN * self.shortest

    @property
    def updates_used(self) -> int:
        return updates_of(self.trials)


def length(warmup_updates: int) -> int:
    """Updates of the training that tests it."""
    return warmup_updates + max(LEAST_TAIL, warmup_updates)


def ladder(updates: int) -> tuple[int, ...]:
    """The warm-ups that so many updates in all are enough to try."""
    found: list[int] = []
    left, warmup = updates, LEAST_WARMUP
    while length(warmup) <= left:
        found.append(warmup)
        left -= length(warmup)
        warmup *= LONGER
    return tuple(found)


def shortest_warmup(
    model: nn.Module,
    batches: Batches,
    maker: Maker,
    *,
    rate: float,
    updates: int,
    watch: Watch = lambda stage, done, total: None,
) -> Warmups:
    """Train with one warm-up after the other until one carries the rate; weights come back bit for bit.

    updates: of all these trainings together, at most. watch: told of the stage, the updates that were made, and
    how many there are at most. Raises ValueError where a forward pass or the loss raises.
    """
    tried: list[Trial] = []
    told = counting(watch, "warm-ups", sum(map(length, ladder(updates))))
    with restored(model) as put_back:
        for warmup in ladder(updates):
            put_back()
            tried.append(
                train_shortly(
                    model, batches, maker, rate=rate, updates=length(warmup), warmup_updates=warmup, watch=told
                )
            )
            if carries(tried[-1]):
                return Warmups(trials=tuple(tried), shortest=warmup)
    return Warmups(trials=tuple(tried), shortest=None)


def outcome_of(trial: Trial) -> Literal["learns", "unsettled", "stuck"]:
    """What became of a training whose losses are finite, as `report.doctor.advice` has it."""
    if mean_of_last(trial.spreads) < ALIVE:
        return "stuck"
    return "learns" if carries(trial) else "unsettled"


def carries(trial: Trial) -> bool:
    """Whether at the end tokens are still told apart, and the loss is below its start and about the lowest so far."""
    last = mean_of_last(trial.losses)
    least = min(mean_of_last(trial.losses[:end]) for end in range(1, len(trial.losses) + 1))
    return mean_of_last(trial.spreads) >= ALIVE and last < trial.losses[0] and last <= least + RISE_NATS
