"""Whether a placement needs a warm-up under an optimiser, from what the seeds say."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from normscope.evidence.estimates import estimate
from normscope.measure import Estimate

from .arms import Arm, Arms, Key
from .config import OptimizersConfig


class Need(StrEnum):
    """The verdicts, the strongest first."""

    NEEDS = "needs it"
    GAINS = "gains from it"
    DOES_NOT = "does not"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A placement under an optimiser, without warm-up and with."""

    placement: str
    optimizer: str
    without: Arm
    warm: Arm
    needs_nats: float

    @property
    def better(self) -> Arm:
        """The one of both whose mean is lower."""
        return min(self.without, self.warm, key=lambda arm: arm.mean_nats)

    @property
    def gain(self) -> Estimate:
        """By how many nats the runs without warm-up end above those with, each at its own best rate; seeds in pairs."""
        return estimate([a - b for a, b in zip(self.without.finals, self.warm.finals, strict=True)])

    @property
    def need(self) -> Need:
        """By the interval of the gain: above `needs_nats`, above 0, below `needs_nats`, or across an edge.

        A gain that is certain and below `needs_nats` is one; so is one that may be above it.
        """
        gain = self.gain
        low, high = float(gain.low), float(gain.high)
        if low > self.needs_nats:
            return Need.NEEDS
        if low > 0:
            return Need.GAINS
        return Need.DOES_NOT if high < self.needs_nats else Need.UNDECIDED


Pairings = Mapping[tuple[str, str], Pairing]
"""By placement and optimiser."""


def pairings(config: OptimizersConfig, arms: Arms) -> Pairings:
    """Of every placement under every optimiser."""
    return {
        (placement, optimizer): Pairing(
            placement=placement,
            optimizer=optimizer,
            without=arms[Key(placement, optimizer, 0)],
            warm=arms[Key(placement, optimizer, config.warmup_updates)],
            needs_nats=config.needs_nats,
        )
        for placement in config.placements
        for optimizer in config.optimizers
    }
