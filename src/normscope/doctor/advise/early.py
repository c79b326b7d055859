"""From the first updates of a training at one rate to the chance that it ends stuck."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from .facts import Facts
from .reading import least_spread, loss_after
from .rule import Linear, chance_of
from .trial import Trial

MOST_RISEN_NATS = 20.0
"""A loss that has risen further, or is not finite, counts as this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Early:
    """What is known of a training without warm-up after its first updates."""

    facts: Facts
    rate: float
    """log10."""
    least_spread: float
    """log10 of the least spread between tokens on the way, of its start."""
    risen: float
    """Nats by which the loss of the last updates lies above that before the first; `MOST_RISEN_NATS` at most."""

    @classmethod
    def of_trial(cls, facts: Facts, trial: Trial, updates: int) -> "Early":
        """updates: of the training; one that has not so many was not finite."""
        return cls(
            facts=facts,
            rate=math.log10(trial.rate),
            least_spread=least_spread(trial),
            risen=min(loss_after(trial, updates) - trial.losses[0], MOST_RISEN_NATS),
        )

    @property
    def optimizer(self) -> str:
        return self.facts.optimizer

    def values(self) -> Mapping[str, float]:
        """All numbers by name."""
        own = {"rate": self.rate, "least_spread": self.least_spread, "risen": self.risen}
        return {**self.facts.values(), **own}


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRule:
    """Constants fitted to trainings; `normscope study amplification-trainings` makes and judges them."""

    odds: Linear
    """Log odds of being stuck at the end."""
    updates: int
    """Of the short training."""

    def stuck_chance(self, facts: Facts, trial: Trial) -> float:
        """That training at the trial's rate, without warm-up, ends stuck."""
        return chance_of(self.odds(Early.of_trial(facts, trial, self.updates)))


@cache
def shipped_early_rule() -> EarlyRule:
    """The constants that come with the package."""
    table: Mapping[str, Any] = json.loads(files(__package__).joinpath("early.json").read_text(encoding="utf-8"))
    return EarlyRule(odds=Linear(**table["odds"]), updates=table["updates"])
