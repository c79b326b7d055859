"""The shortest warm-up of a ladder that carries a rate, by a short training with each."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from .optimizers import Maker
from .trial import Batches, Trial, mean_of_last, restored, train_shortly, updates_of

LEAST_WARMUP, LONGER = 10, 2
"""The ladder's first warm-up in updates, and by which factor each is longer than the one before."""
TAIL = 0.5
"""Updates at the whole rate after the warm-up, as a share of it."""
ALIVE = 0.02
"""Spread between tokens, of its start, that a training that is not about to be stuck has at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmups:
    """What was tried, from the shortest on."""

    trials: tuple[Trial, ...]
    shortest: int | None
    """None where the longest that the budget allowed did not do."""

    @property
    def updates_used(self) -> int:
        return updates_of(self.trials)


def length(warmup_updates: int) -> int:
    """Updates of the training that tests it."""
    return warmup_updates + max(LEAST_WARMUP, math.ceil(TAIL * warmup_updates))


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
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Warmups:
    """Train with one warm-up after the other until one carries the rate; weights come back bit for bit.

    updates: of all these trainings together, at most. watch: told of the stage, the updates that were made, and
    how many there are at most. Raises ValueError where a forward pass or the loss raises.
    """
    tried: list[Trial] = []
    total, done = sum(map(length, ladder(updates))), 0

    def told() -> None:
        nonlocal done
        done += 1
        watch("warm-ups", done, total)

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


def carries(trial: Trial) -> bool:
    """Whether tokens are still told apart at the end, and the loss is below its start."""
    return mean_of_last(trial.spreads) >= ALIVE and mean_of_last(trial.losses) < trial.losses[0]
