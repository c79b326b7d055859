"""Advice that looks: short real trainings at a few rates, of which the second round is about the best of the first."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from .optimizers import Maker
from .reading import read
from .rule import ProbeRule
from .trial import Batches, Trial, restored, train_shortly, updates_of

LEAST_UPDATES = 24
"""Fewer than these tell nothing."""
FIRST_RATES, SECOND_RATES = 3, 2
_APART, _CLOSE = math.log10(4), math.log10(2)
"""Decades between the rates of the first round, and of the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the short trainings were, and what they say."""

    trials: tuple[Trial, ...]
    best: float
    """log10 of the rate."""

    @property
    def updates_used(self) -> int:
        return updates_of(self.trials)


def lengths(updates: int) -> tuple[int, int]:
    """Updates of each training in the first and in the second round, for so many in all.

    Raises ValueError for too few.
    """
    if updates < LEAST_UPDATES:
        raise ValueError(f"a probe needs at least {LEAST_UPDATES} updates, got {updates}")
    first = updates // (2 * FIRST_RATES)
    return first, (updates - FIRST_RATES * first) // SECOND_RATES


def probe(
    model: nn.Module,
    batches: Batches,
    maker: Maker,
    *,
    updates: int,
    expected: float,
    rule: ProbeRule,
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Probe:
    """Train `model` for so many updates in all, at rates about `expected`, and put its weights back bit for bit.

    expected: log10 of the rate that is foreseen without a training. watch: told of the stage, the updates that were
    made, and how many there are. Raises ValueError for too few updates, and where a forward pass or the loss raises.
    """
    first, second = lengths(updates)
    total, done = FIRST_RATES * first + SECOND_RATES * second, 0

    def told() -> None:
        nonlocal done
        done += 1
        watch("short trainings", min(done, total), total)

    trials: list[Trial] = []
    watch("short trainings", 0, total)
    with restored(model) as put_back:

        def train(rate: float, length: int) -> None:
            put_back()
            trials.append(train_shortly(model, batches, maker, rate=10**rate, updates=length, watch=told))

        for place in range(FIRST_RATES):
            train(expected + (place - FIRST_RATES // 2) * _APART, first)
        middle = combined(trials, first, expected, rule)
        for place in range(SECOND_RATES):
            train(middle + (place - (SECOND_RATES - 1) / 2) * _CLOSE, second)
    return Probe(trials=tuple(trials), best=combined(trials, first, expected, rule))


def combined(trials: Sequence[Trial], updates: int, expected: float, rule: ProbeRule) -> float:
    """What the trainings say, and what was expected, by the share that the first counts."""
    return rule.share * read(trials, updates, rule) + (1 - rule.share) * expected
