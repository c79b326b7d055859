"""The shortest warm-up that carries a rate which does not train without one."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...doctor.advise.calibration import Calibration
from ..protocol.pieces import Pieces
from .cases import rate_of
from .config import AdviceConfig
from .fit import Known
from .search import learned, training


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """What was found for one case and rate."""

    name: str
    rate: float
    beyond: float
    """Decades above the largest rate that trained without warm-up."""
    shortest: int | None
    """In updates; None where the longest that was tried did not do."""


def shortest(ladder: tuple[int, ...], trains: Callable[[int], bool]) -> int | None:
    """By halving: a warm-up that trains is taken to mean that longer ones do."""
    low, high = 0, len(ladder)
    while low < high:
        middle = (low + high) // 2
        if trains(ladder[middle]):
            high = middle
        else:
            low = middle + 1
    return ladder[low] if low < len(ladder) else None


def warmups_of(known: Known, config: AdviceConfig, pieces: Pieces) -> list[Warmup]:
    """At each of `warmup_steps` beyond the largest rate that trained; nothing where none did."""
    largest = known.largest
    if largest is None or not known.bounded:
        return []
    found = []
    for step in config.warmup_steps:
        rate = rate_of(largest + step)

        def trains(warmup: int, rate: float = rate) -> bool:
            updates = config.updates_of(known.case) + warmup
            options = {"updates": updates, "max_tokens": config.max_tokens, "warmup_updates": warmup}
            return learned(training(known.case, rate, pieces, **options))

        found.append(
            Warmup(
                name=known.case.name,
                rate=rate,
                beyond=math.log10(rate) - math.log10(rate_of(largest)),
                shortest=shortest(config.warmup_ladder, trains),
            )
        )
    return found


def points(found: Sequence[Warmup], ladder: Sequence[int]) -> list[tuple[float, int]]:
    """Decades beyond the largest rate, and the warm-up; where none that was tried did, twice the longest: at least."""
    return [(one.beyond, 2 * ladder[-1] if one.shortest is None else one.shortest) for one in found]


def rule(constants: Calibration) -> str:
    """The fitted rule in words."""
    return (
        f"{10**constants.warmup:.3g} updates at the largest rate that trains without one, times "
        f"{10**constants.warmup_slope:.3g} for every factor of ten above it"
    )
