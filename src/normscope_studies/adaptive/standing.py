"""How the arms of one task stand to each other, seed by seed."""

from collections.abc import Mapping
from dataclasses import dataclass

from normscope.evidence.estimates import estimate
from normscope.measure import Estimate

from .arms import Arm, Key
from .config import AdaptiveStudyConfig, Kind
from .families import POST, PRE, title


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All arms of one task."""

    task: str
    unigram_nats: float
    config: AdaptiveStudyConfig
    arms: Mapping[Key, Arm]

    @property
    def words(self) -> str:
        return self.task.replace("-", " ")

    @property
    def kinds(self) -> list[Kind]:
        """The lowest loss first, each with the better of its warm-ups."""
        return sorted(self.config.kinds, key=lambda kind: self.better(kind).mean_nats)

    @property
    def moved(self) -> list[Kind]:
        """Those whose number moves."""
        return [kind for kind in self.config.kinds if kind[1] != "fixed"]

    def without(self, kind: Kind) -> Arm:
        """Without warm-up."""
        return self.arms[Key(*kind, 0)]

    def warm(self, kind: Kind) -> Arm:
        """With warm-up."""
        return self.arms[Key(*kind, self.config.warmup_updates)]

    def better(self, kind: Kind) -> Arm:
        """The one of both whose mean is lower."""
        return min(self.without(kind), self.warm(kind), key=lambda arm: arm.mean_nats)

    @property
    def pre(self) -> Arm:
        """Pre-LN, with or without warm-up, whichever is better."""
        return self.better((PRE, "fixed"))

    @property
    def post(self) -> Arm:
        """Post-LN with warm-up."""
        return self.warm((POST, "fixed"))

    @property
    def best_fixed(self) -> Arm:
        """Of the placements whose numbers stay, the one that ends lowest."""
        return min((self.better(kind) for kind in self.config.kinds if kind[1] == "fixed"), key=lambda a: a.mean_nats)

    def above(self, kind: Kind, other: Arm) -> Estimate:
        """By how many nats it ends above another arm, at its own better warm-up; over seeds in pairs."""
        return difference(self.better(kind), other)

    def warmup_gain(self, kind: Kind) -> Estimate:
        """By how many nats its runs without warm-up end above those with; over seeds in pairs."""
        return difference(self.without(kind), self.warm(kind))

    def named(self, kind: Kind) -> str:
        """An arm in words that name the task too."""
        return f"{title(*kind)} ({self.words})"


def difference(arm: Arm, other: Arm) -> Estimate:
    """By how many nats the first ends above the second, over seeds in pairs."""
    return estimate([a - b for a, b in zip(arm.finals, other.finals, strict=True)])
