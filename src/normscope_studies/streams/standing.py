"""How the placements of one task stand to Pre-LN, seed by seed, and what was measured of their runs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from normscope.evidence.estimates import estimate
from normscope.measure import Estimate
from normscope.placement import named

from .config import StreamsConfig
from .runs import Arm, Arms
from .sources import BASE

Seen = Mapping[str, float]
"""Of one run: worth_nats, turned, correlation and gradient_spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All placements of one task."""

    task: str
    unigram_nats: float
    arms: Arms
    seen: Mapping[tuple[str, int], Sequence[Seen]]
    """Of the runs at an arm's best rate, one a seed; a run that did not stay finite has none."""
    warmup_updates: int

    @property
    def words(self) -> str:
        return self.task.replace("-", " ")

    @property
    def placements(self) -> list[str]:
        """The lowest loss first, each with the better of its warm-ups."""
        names = dict.fromkeys(placement for placement, _ in self.arms)
        return sorted(names, key=lambda name: self.better(name).mean_nats)

    def without(self, placement: str) -> Arm:
        """Without warm-up."""
        return self.arms[placement, 0]

    def warm(self, placement: str) -> Arm:
        """With warm-up."""
        return self.arms[placement, self.warmup_updates]

    def better(self, placement: str) -> Arm:
        """The one of both whose mean is lower."""
        return min(self.without(placement), self.warm(placement), key=lambda arm: arm.mean_nats)

    def less_base(self, placement: str) -> Estimate:
        """By how many nats it ends above Pre-LN, each at its better warm-up; over seeds in pairs."""
        return _difference(self.better(placement), self.better(BASE))

    def warmup_gain(self, placement: str) -> Estimate:
        """By how many nats the runs without warm-up end above those with; over seeds in pairs."""
        return _difference(self.without(placement), self.warm(placement))

    def mean_seen(self, arm: Arm, name: str) -> float:
        """Mean over the seeds that have it; NaN for none."""
        values = [one[name] for one in self.seen[arm.placement, arm.warmup_updates]]
        return math.fsum(values) / len(values) if values else math.nan


def stand(
    config: StreamsConfig, task: str, unigram_nats: float, arms: Arms, look: Callable[[Arm], list[Seen]]
) -> Standing:
    """look: what was measured of an arm's best runs."""
    return Standing(
        task=task,
        unigram_nats=unigram_nats,
        arms=arms,
        seen={key: look(arm) for key, arm in arms.items()},
        warmup_updates=config.warmup_updates,
    )


def title(placement: str) -> str:
    return named(placement).title


def _difference(arm: Arm, other: Arm) -> Estimate:
    return estimate([a - b for a, b in zip(arm.finals, other.finals, strict=True)])
