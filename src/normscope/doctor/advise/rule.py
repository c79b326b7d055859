"""How short trainings about an expected rate are read: constants from trainings."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol


class NamedFacts(Protocol):
    """What is known of a case: numbers by name."""

    @property
    def optimizer(self) -> str: ...

    def values(self) -> Mapping[str, float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFit:
    """Decades: an offset, a weight for each fact, and an optimiser's own offset."""

    offset: float
    weights: Mapping[str, float]
    """By name of the fact."""
    optimizers: Mapping[str, float]
    """By name; 0 for Adam. One that is not here is taken for Adam."""

    def __call__(self, seen: NamedFacts) -> float:
        values = seen.values()
        known = sum(weight * values[name] for name, weight in self.weights.items())
        return self.offset + known + self.optimizers.get(seen.optimizer, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRule:
    """Constants fitted to trainings, all but the last five in decades (log10), of 200 updates at a constant rate;
    `normscope study advice` judges them under schedules."""

    beyond: LinearFit
    """From the expected rate to the best one: the constant rate whose loss is lowest after `horizon_updates`, without
    warm-up."""
    low: float
    """The interval of the best rate reaches from this, at or below 0 ..."""
    high: float
    """... to this, about what is foreseen."""
    below: float
    """How far below the best rate lies the lowest that is about as good: the median."""
    above: float
    """The same of the highest."""
    updates: int
    """Of all short trainings together, in those that the constants were fitted to."""
    trial_updates: int
    """Of the training at the wanted rate: as many as of each of the others."""
    horizon_updates: int
    regret_nats: float
    """A rate is good where the loss ends within this of the lowest."""
    confidence: float
    """What intervals are made to cover."""


@cache
def shipped_rule() -> ProbeRule:
    """The constants that come with the package."""
    return rule_of_table(json.loads(files(__package__).joinpath("rule.json").read_text(encoding="utf-8")))


def rule_of_table(table: Mapping[str, Any]) -> ProbeRule:
    """Constants from JSON, as `asdict` makes them."""
    return ProbeRule(**{**table, "beyond": LinearFit(**table["beyond"])})
