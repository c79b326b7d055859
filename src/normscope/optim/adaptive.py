"""Numbers in a placement's formula that follow a schedule over updates, as a pure function of the update."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from ..settings.choices import check_choices
from .schedules import UpdatesOf, parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveConfig:
    """What `branch_scale` of branch-norm and `post` of pre-to-post follow; other placements have no such number."""

    start: float = 0.0
    """Its value before the first update."""
    end: float = 1.0
    """Its value from the end of the schedule on."""
    over: int | str = 4000
    """How long it takes, in updates (4000) or epochs ("2 epochs")."""
    shape: Literal["linear", "cosine"] = "linear"
    """linear: a straight line; cosine: half a cosine, flat at both ends."""

    def __post_init__(self) -> None:
        check_choices(self)
        parse_duration(self.over)
        for name in ("start", "end"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, got {getattr(self, name)}")

    def in_updates(self, updates_of: UpdatesOf) -> "AdaptiveConfig":
        """The same schedule with `over` in updates."""
        return replace(self, over=updates_of(self.over))


def adaptive_value(schedule: AdaptiveConfig, update: int) -> float:
    """The number at `update`, counted from 1; 0 gives `start`, and `over` and all later ones give `end`.

    `over` must be in updates (`AdaptiveConfig.in_updates`). Raises ValueError for update < 0.
    """
    if update < 0:
        raise ValueError(f"updates are counted from 1, and 0 is before the first, got {update}")
    share = min(1.0, update / int(schedule.over))
    if schedule.shape == "cosine":
        share = 0.5 - 0.5 * math.cos(math.pi * share)
    # Exact at both ends whatever they are.
    return (1 - share) * schedule.start + share * schedule.end
