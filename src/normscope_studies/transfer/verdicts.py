"""Exponents over width and depth, and whether they let a rate carry over."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from normscope.evidence.estimates import exponent, pooled_exponent
from normscope.evidence.judging import lies_within
from normscope.measure import Estimate

from .config import AXES, TransferConfig
from .ladders import Key, Ladder
from .measure import WHAT

Coordinates = Mapping[tuple[str, int, int], Sequence[Mapping[str, Sequence[float]]]]
"""By placement, width and blocks: of each seed what `measure.coordinates` gives."""


class Carries(StrEnum):
    """Whether something is the same at every size."""

    TRANSFERS = "transfers"
    DRIFTS = "drifts"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """An exponent over width or depth."""

    placement: str
    axis: str
    of: str
    """What changes: `output` or `logits` after so many updates, or the best rate with so much warm-up."""
    at: int
    """Updates, of the check or of the warm-up."""
    found: Estimate
    edge: float
    at_an_end: int = 0
    """Sizes whose best rate is the ladder's first or last: it may lie beyond."""

    @property
    def carries(self) -> Carries:
        """Undecided, too, where a best rate may lie beyond the ladder."""
        answer = lies_within(self.found, 0.0, self.edge)
        if self.at_an_end or answer is None or math.isnan(float(self.found.half_width)):
            return Carries.UNDECIDED
        return Carries.TRANSFERS if answer else Carries.DRIFTS


def coordinate_drifts(config: TransferConfig, found: Coordinates) -> list[Drift]:
    """Of output and logits, after every number of updates, along both axes."""
    drifts = []
    for placement in config.placements:
        for axis in AXES:
            for of in WHAT:
                for place, update in enumerate(config.coordinate_updates):
                    moved = [
                        [found[placement, *size][seed][of][place] for size in config.sizes(axis)]
                        for seed in range(config.seeds)
                    ]
                    drifts.append(
                        Drift(
                            placement=placement,
                            axis=axis,
                            of=of,
                            at=update,
                            found=exponent(config.along(axis), moved),
                            edge=config.coordinate_edge,
                        )
                    )
    return drifts


def rate_drifts(config: TransferConfig, ladders: Mapping[Key, Ladder]) -> list[Drift]:
    """Of the best rate, for every warm-up along both axes."""
    drifts = []
    for placement in config.placements:
        for axis in AXES:
            for warmup in config.warmups:
                along = [ladders[Key(placement, *size, warmup)] for size in config.sizes(axis)]
                best = list(zip(*(ladder.best_lrs for ladder in along), strict=True))
                drifts.append(
                    Drift(
                        placement=placement,
                        axis=axis,
                        of="best rate",
                        at=warmup,
                        found=pooled_exponent(config.along(axis), best),
                        at_an_end=sum(ladder.at_an_end for ladder in along),
                        edge=config.rate_edge,
                    )
                )
    return drifts
