"""What short trainings at several rates say about the best rate of longer ones."""

import math
from collections.abc import Sequence

from ...measure.parabola import bottom
from .rule import ProbeRule
from .trial import Trial, mean_of_last

_LEAST_SPREAD = 1e-14
_BEYOND, _BELOW = 0.6, 0.3
"""Where the spread is taken to fall to the level where it does at none, or at all, of the rates: decades away."""


def read(trials: Sequence[Trial], updates: int, rule: ProbeRule) -> float:
    """log10 of the best rate, as the smaller of two: a little below the rate whose loss is lowest after so many
    updates, and the rate at which the spread between tokens has fallen to a level.

    The second is what a loss cannot show: a training that is about to be stuck at the frequencies of tokens learns
    those faster than any other. updates: of each training what is read; those that have not so many count as failed.
    """
    ordered = sorted(trials, key=lambda trial: trial.rate)
    rates = [math.log10(trial.rate) for trial in ordered]
    losses = [loss_after(trial, updates) for trial in ordered]
    spreads = [least_spread(trial, updates) for trial in ordered]
    return min(_lowest(rates, losses) + rule.loss, _falls_to(rule.level, rates, spreads))


def loss_after(trial: Trial, updates: int) -> float:
    """Mean loss of the last batches; infinite where the training ended before."""
    if len(trial.losses) < updates:
        return math.inf
    mean = mean_of_last(trial.losses[:updates])
    return mean if math.isfinite(mean) else math.inf


def least_spread(trial: Trial, updates: int) -> float:
    """log10 of the least spread between tokens on the way, of its start."""
    seen = [spread for spread in trial.spreads[1:updates] if math.isfinite(spread)]
    return math.log10(max(_LEAST_SPREAD, min(seen, default=_LEAST_SPREAD)))


def _lowest(rates: Sequence[float], losses: Sequence[float]) -> float:
    """Where the loss is lowest, by a parabola through three rates where it lies between."""
    at = min(range(len(losses)), key=losses.__getitem__)
    if not 0 < at < len(losses) - 1 or not all(map(math.isfinite, losses[at - 1 : at + 2])):
        return rates[at]
    return bottom(rates[at - 1 : at + 2], losses[at - 1 : at + 2])


def _falls_to(level: float, rates: Sequence[float], spreads: Sequence[float]) -> float:
    """The first rate whose spread is at or below the level, between rates by a straight line."""
    for at, spread in enumerate(spreads):
        if spread > level:
            continue
        if at == 0:
            return rates[0] - _BELOW
        share = (spreads[at - 1] - level) / (spreads[at - 1] - spread)
        return rates[at - 1] + share * (rates[at] - rates[at - 1])
    return rates[-1] + _BEYOND
