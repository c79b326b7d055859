"""From what a first update, or a short run, shows to the best learning rate: formulas with constants from trainings."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from ..record import Stack
from .first_update import FirstUpdate
from .short_run import ShortRun, least_spread, loss_after

FADED = 0.1
"""Share of the spread between tokens at which an update has made the answers to them alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Rates in decades (log10)."""

    optimizer: str
    reach: float
    """Where the first update is as long as the weights."""
    fading: float
    """Where the spread between tokens has fallen to `FADED`; `rise` where it never does below that."""
    rise: float
    """Where the loss along the update is back at its start; the largest rate looked at where it never is."""
    sublayers: float
    """log10 of how many all stacks have."""
    width: float
    """log10 of the widest stream's width."""
    normed_sums: float
    """Share of the sub-layers whose residual sum is normed, as in Post-LN."""
    normed_depth: float
    """That share times the decades by which there are more sub-layers than ten."""
    normed_branches: float
    """Share of the sub-layers whose branch is normed before it is added, as in Peri-LN."""

    def values(self) -> Mapping[str, float]:
        """All numbers by name."""
        return {name: value for name, value in asdict(self).items() if name != "optimizer"}


def facts_of(seen: FirstUpdate, *, optimizer: str, stacks: Sequence[Stack]) -> ModelFacts:
    """What the rule is asked with. What accumulates over a training is not seen in its first update, and the formulas
    that were found are what tells of it."""
    rise = seen.rise_rate or seen.rates[-1]
    fading = seen.spread_falls_to(FADED)
    formulas = [sublayer.formula for stack in stacks for sublayer in stack.sublayers]
    count = max(1, len(formulas))
    normed = sum(formula.sum_is_normed for formula in formulas) / count
    return ModelFacts(
        optimizer=optimizer,
        reach=math.log10(seen.reach),
        fading=math.log10(rise if fading is None else min(fading, rise)),
        rise=math.log10(rise),
        sublayers=math.log10(count),
        width=math.log10(max([stack.width for stack in stacks], default=1)),
        normed_sums=normed,
        normed_depth=normed * (math.log10(count) - 1),
        normed_branches=sum(formula.branch_is_normed for formula in formulas) / count,
    )


ADAM = "adam"


class NamedFacts(Protocol):
    """What is known of a model: numbers by name."""

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
class FittedTo:
    """The models that the rule was fitted to, so that one can say how far from them another is."""

    scales: Mapping[str, float]
    """What counts as 1 of each fact: its standard deviation among them."""
    points: tuple[Mapping[str, float], ...]
    """Their facts."""
    limit: float
    """Beyond this distance the rule has never been tested on a family that it was not fitted to."""

    def distance(self, facts: ModelFacts) -> float:
        """Euclidean, to the nearest of them, each fact in units of its scale."""
        values = facts.values()
        return min(
            math.sqrt(sum(((values[name] - point[name]) / scale) ** 2 for name, scale in self.scales.items()))
            for point in self.points
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRule:
    """How short trainings are read; all in decades."""

    beyond: LinearFit
    """From the expected rate to the best one."""
    low: float
    """The interval reaches from this, at or below 0 ..."""
    high: float
    """... to this, about what is foreseen."""
    updates: int
    """Of all short trainings together, in those that the constants were fitted to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRule:
    """Constants fitted to trainings; `normscope study advice` makes them and judges them on other families."""

    best: LinearFit
    """The constant rate whose loss is lowest after `horizon_updates`, without warm-up."""
    stuck: LinearFit
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

    def stuck_chance(self, facts: ModelFacts, rate: float) -> float:
        """That training at this constant rate, without warm-up, ends stuck."""
        return chance_of((math.log10(rate) - self.stuck(facts)) / self.deviation)


def chance_of(odds: float) -> float:
    """The logistic of log odds; beyond 50 nobody asks by how much."""
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, odds))))


@cache
def shipped_rule() -> RateRule:
    """The constants that come with the package."""
    return rule_of_table(json.loads(files(__package__).joinpath("rule.json").read_text(encoding="utf-8")))


def rule_of_table(table: Mapping[str, Any]) -> RateRule:
    """Constants from JSON."""
    tested = table["tested"]
    return RateRule(
        **{key: value for key, value in table.items() if key not in ("best", "stuck", "tested", "probe", "optimizers")},
        best=LinearFit(**table["best"]),
        stuck=LinearFit(**table["stuck"]),
        tested=FittedTo(scales=tested["scales"], points=tuple(tested["points"]), limit=tested["limit"]),
        probe=ProbeRule(**table["probe"] | {"beyond": LinearFit(**table["probe"]["beyond"])}),
        optimizers=tuple(table["optimizers"]),
    )


def to_table(rule: RateRule) -> dict[str, Any]:
    """Constants for JSON."""
    return asdict(rule)


MOST_RISEN_NATS = 20.0
"""A loss that has risen further, or is not finite, counts as this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyFacts:
    """What is known of a training without warm-up after its first updates."""

    facts: ModelFacts
    rate: float
    """log10."""
    least_spread: float
    """log10 of the least spread between tokens on the way, of its start."""
    risen: float
    """Nats by which the loss of the last updates lies above that before the first; `MOST_RISEN_NATS` at most."""

    @classmethod
    def of_trial(cls, facts: ModelFacts, trial: ShortRun, updates: int) -> "EarlyFacts":
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

    odds: LinearFit
    """Log odds of being stuck at the end."""
    updates: int
    """Of the short training."""

    def stuck_chance(self, facts: ModelFacts, trial: ShortRun) -> float:
        """That training at the trial's rate, without warm-up, ends stuck."""
        return chance_of(self.odds(EarlyFacts.of_trial(facts, trial, self.updates)))


@cache
def shipped_early_rule() -> EarlyRule:
    """The constants that come with the package."""
    table: Mapping[str, Any] = json.loads(files(__package__).joinpath("early.json").read_text(encoding="utf-8"))
    return EarlyRule(odds=LinearFit(**table["odds"]), updates=table["updates"])
