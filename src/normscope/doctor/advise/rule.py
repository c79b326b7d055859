"""From what a first update shows to the best learning rate: a formula with constants from real trainings."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from .facts import Facts

ADAM = "adam"


class Seen(Protocol):
    """What is known of a model: numbers by name."""

    @property
    def optimizer(self) -> str: ...

    def values(self) -> Mapping[str, float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Decades: an offset, a weight for each fact, and an optimiser's own offset."""

    offset: float
    weights: Mapping[str, float]
    """By name of the fact."""
    optimizers: Mapping[str, float]
    """By name; 0 for Adam. One that is not here is taken for Adam."""

    def __call__(self, seen: Seen) -> float:
        values = seen.values()
        known = sum(weight * values[name] for name, weight in self.weights.items())
        return self.offset + known + self.optimizers.get(seen.optimizer, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTo:
    """The models that the rule was fitted to, so that one can say how far from them another is."""

    scales: Mapping[str, float]
    """What counts as 1 of each fact: its standard deviation among them."""
    points: tuple[Mapping[str, float], ...]
    """Their facts."""
    limit: float
    """Beyond this distance the rule has never been tested on a family that it was not fitted to."""

    def distance(self, facts: Facts) -> float:
        """Euclidean, to the nearest of them, each fact in units of its scale."""
        values = facts.values()
        return min(
            math.sqrt(sum(((values[name] - point[name]) / scale) ** 2 for name, scale in self.scales.items()))
            for point in self.points
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRule:
    """How short trainings are read; all in decades."""

    beyond: Linear
    """From the expected rate to the best one."""
    low: float
    """The interval reaches from this, at or below 0 ..."""
    high: float
    """... to this, about what is foreseen."""
    updates: int
    """Of all short trainings together, in those that the constants were fitted to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Constants fitted to trainings; `normscope study advice` makes them and judges them on other families."""

    best: Linear
    """The constant rate whose loss is lowest after `horizon_updates`, without warm-up."""
    stuck: Linear
    """The rate from which on training is likelier stuck than not."""
    low: float
    """The interval of the best rate reaches from this, in decades ..."""
    high: float
    """... to this."""
    below: float
    """How far below the best rate lies the lowest that is about as good, in decades: the median."""
    above: float
    """The same of the highest."""
    deviation: float
    """The scale of the logistic, in decades, that chances to be stuck are read from."""
    tested: FittedTo
    probe: ProbeRule
    optimizers: tuple[str, ...]
    """With which trainings were made."""
    horizon_updates: int
    regret_nats: float
    """A rate is good where the loss ends within this of the lowest."""
    confidence: float
    """What intervals are made to cover."""

    def stuck_chance(self, facts: Facts, rate: float) -> float:
        """That training at this constant rate, without warm-up, ends stuck."""
        return chance_of((math.log10(rate) - self.stuck(facts)) / self.deviation)


def chance_of(odds: float) -> float:
    """The logistic of log odds; beyond 50 nobody asks by how much."""
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, odds))))


@cache
def shipped_rule() -> Rule:
    """The constants that come with the package."""
    return of_table(json.loads(files(__package__).joinpath("rule.json").read_text(encoding="utf-8")))


def of_table(table: Mapping[str, Any]) -> Rule:
    """Constants from JSON."""
    tested = table["tested"]
    return Rule(
        **{key: value for key, value in table.items() if key not in ("best", "stuck", "tested", "probe", "optimizers")},
        best=Linear(**table["best"]),
        stuck=Linear(**table["stuck"]),
        tested=FittedTo(scales=tested["scales"], points=tuple(tested["points"]), limit=tested["limit"]),
        probe=ProbeRule(**table["probe"] | {"beyond": Linear(**table["probe"]["beyond"])}),
        optimizers=tuple(table["optimizers"]),
    )


def to_table(rule: Rule) -> dict[str, Any]:
    """Constants for JSON."""
    return asdict(rule)
