"""What short trainings at several rates show of the best rate of longer ones."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ...measure.line import lowest
from .trial import Trial, mean_of_last

LEAST_SPREAD = -8.0
"""log10: an output that is this much alike for all tokens is no more alike for being more so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
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


def reading_of(trials: Sequence[Trial], updates: int, *, optimizer: str) -> Reading:
    """What trainings at rising rates show, of which the middle one is at the expected rate.

    updates: of each; one that has not so many counts as failed.
    """
    middle = len(trials) // 2
    expected = math.log10(trials[middle].rate)
    losses = [loss_after(trial, updates) for trial in trials]
    below, here, above = (least_spread(trial) for trial in trials[middle - 1 : middle + 2])
    gain = trials[middle].losses[0] - min(losses)
    return Reading(
        optimizer=optimizer,
        lowest=lowest([math.log10(trial.rate) - expected for trial in trials], losses),
        gain=gain if math.isfinite(gain) else 0.0,
        spread_below=below,
        spread=here,
        spread_above=above,
    )


def loss_after(trial: Trial, updates: int) -> float:
    """Mean loss of the last batches; infinite where the training ended before."""
    if len(trial.losses) < updates:
        return math.inf
    mean = mean_of_last(trial.losses)
    return mean if math.isfinite(mean) else math.inf


def least_spread(trial: Trial) -> float:
    """log10 of the least spread between tokens on the way, of its start."""
    seen = [spread for spread in trial.spreads[1:] if math.isfinite(spread)]
    return math.log10(max(10**LEAST_SPREAD, min(seen, default=0.0)))
