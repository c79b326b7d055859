"""From what a first update shows to the largest rate that trains: a formula with constants from real trainings."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from .first_update import FirstUpdate

LOST = 1e-3
"""Share of the spread between tokens at which the model has stopped telling them apart."""
ADAM = "adam"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the largest rate that trains is foreseen from; rates in decades (log10)."""

    optimizer: str
    reach: float
    """Where the first update is as long as the weights."""
    collapse: float | None
    """Where the spread between tokens has fallen to `LOST`; None where it does not, or not before the loss explodes."""
    rise: float
    """Where the loss along the update is back at its start; the largest rate looked at where it never is."""
    sublayers: int
    """Of all stacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Constants, in decades, fitted to trainings; `normscope study advice` makes them and judges them on others.

    log10 of the largest rate that trains = min(collapse + a + b log10(sublayers / 20), rise + c) + optimiser's own.
    """

    collapse: float
    """a"""
    depth: float
    """b"""
    rise: float
    """c"""
    optimizers: Mapping[str, float]
    """By name; 0 for Adam."""
    deviation: float
    """Of what is foreseen from what trains: the scale of the logistic that chances are read from."""
    margin: float
    """How far below what is foreseen the safe rate lies."""
    factor: float
    """Within this factor of the safe rate lay the largest rate that trained, nineteen times in twenty."""
    warmup: float
    """log10 of the shortest warm-up, in updates, at the largest rate that trains without."""
    warmup_slope: float
    """What a decade of rate adds to it."""

    def foreseen(self, facts: Facts) -> float:
        """log10 of the largest constant rate that trains without warm-up."""
        rates = [facts.rise + self.rise]
        if facts.collapse is not None:
            rates.append(facts.collapse + self.collapse + self.depth * math.log10(facts.sublayers / 20))
        return min(rates) + self.optimizers.get(facts.optimizer, 0.0)

    def chance(self, facts: Facts, rate: float) -> float:
        """That training diverges at a constant rate without warm-up."""
        distance = (math.log10(rate) - self.foreseen(facts)) / self.deviation
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, distance))))

    def safe_rate(self, facts: Facts) -> float:
        return float(10 ** (self.foreseen(facts) - self.margin))

    def warmup_updates(self, facts: Facts, rate: float) -> int:
        """The shortest linear warm-up for a peak rate; 0 at and below the safe rate."""
        if rate <= self.safe_rate(facts):
            return 0
        beyond = max(0.0, math.log10(rate) - self.foreseen(facts))
        return math.ceil(10 ** (self.warmup + self.warmup_slope * beyond))


def facts_of(seen: FirstUpdate, *, optimizer: str, sublayers: int) -> Facts:
    """What `Calibration` goes by."""
    rise = seen.rise_rate or seen.rates[-1]
    collapse = seen.spread_falls_to(LOST)
    if collapse is not None and collapse >= min(rise, seen.reach):
        collapse = None
    return Facts(
        optimizer=optimizer,
        reach=math.log10(seen.reach),
        collapse=None if collapse is None else math.log10(collapse),
        rise=math.log10(rise),
        sublayers=max(1, sublayers),
    )


@cache
def calibration() -> Calibration:
    """The constants that come with the package."""
    return of_table(json.loads(files(__package__).joinpath("calibration.json").read_text(encoding="utf-8")))


def of_table(table: Mapping[str, Any]) -> Calibration:
    """Constants from JSON."""
    return Calibration(**table)


def to_table(constants: Calibration) -> dict[str, Any]:
    """Constants for JSON."""
    return asdict(constants)
