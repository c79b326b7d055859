"""What was read from the models of one text, placement by placement, as arrays over seeds and depth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.evidence.estimates import Floats, estimate
from normscope.measure import Estimate
from normscope.placement import named

from .measure import PLACES


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One placement's models on one text."""

    placement: str
    seeds: Sequence[Mapping[str, Any]]
    """What `probed` gives, one a seed."""

    @property
    def title(self) -> str:
        return named(self.placement).title

    @property
    def properties(self) -> tuple[str, ...]:
        return tuple(self.seeds[0]["accuracy"])

    @property
    def reached(self) -> bool:
        """Whether every training came to the target loss."""
        return all(one["reached"] for one in self.seeds)

    def accuracy(self, name: str) -> Floats:
        """(S, L+1, 2): by seed, by completed blocks, before and after the norm."""
        return np.array([one["accuracy"][name] for one in self.seeds], dtype=np.float64)

    def selectivity(self, name: str) -> Floats:
        """Accuracy less that on the control task, shaped alike."""
        return self.accuracy(name) - np.array([one["control"][name] for one in self.seeds], dtype=np.float64)

    def of(self, what: str) -> Floats:
        """(S, …) of cka, lens_nats, anisotropy, left_out_nats, update or valid_nats."""
        return np.array([one[what] for one in self.seeds], dtype=np.float64)

    def neighbours(self) -> Floats:
        """Mean linear CKA of the streams before and after a block, (S,)."""
        cka_SLL = self.of("cka")
        found: Floats = np.diagonal(cka_SLL, 1, 1, 2).mean(1)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReadings:
    """All placements on one text."""

    text: str
    target_nats: float
    majority: Mapping[str, float]
    """By property: the share of its commonest class."""
    readings: Mapping[str, Reading]


def over_blocks(values_SLP: Floats, place: int = PLACES.index("after")) -> Floats:
    """Mean over the blocks' streams, the embedding's left out, (S,)."""
    found: Floats = values_SLP[:, 1:, place].mean(1)
    return found


def less(one_S: Floats, other_S: Floats) -> Estimate:
    """The difference, over seeds in pairs."""
    return estimate(one_S - other_S)
