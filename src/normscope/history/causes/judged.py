"""What every pattern says of an episode."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..episodes import Episode
from ..record import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Whether a pattern fits."""

    fits: bool
    evidence: tuple[str, ...] = ()
    """What was seen that speaks for it, in words; of one that does not fit, nothing."""
    missing: tuple[str, ...] = ()
    """What would have to be recorded to decide; nothing where what is there decides."""


NO = Judged(fits=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A known pattern."""

    id: str
    title: str
    judge: Callable[[History, Episode], Judged]
    attempt: str
    """What to try."""
    where: Literal["sub-layer", "output layer", "whole model"] = "whole model"
    """What it begins in: one sub-layer that may lead the others, the output layer, or nothing in particular."""


def unless_recorded(*missing: str) -> Judged:
    """A pattern that nothing speaks for, because the log lacks what would."""
    return Judged(fits=False, missing=missing)
