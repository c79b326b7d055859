"""Numbers in a placement's formula that follow a schedule over updates, as a pure function of how many have counted."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from ..settings.tables import check_choices
from .schedules import UpdatesOf, parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveConfig:
    """What a scheduled number of a formula follows, such as `post` of pre-to-post; most placements have none."""

    start: float = 0.0
    """Its value before the first update."""
    end: float = 1.0
    """Its value from the end of the schedule on."""
    over: int | str = 4000
    """How long it takes, in updates (4000) or epochs ("2 epochs")."""
    shape: Literal["linear", "cosine"] = "linear"
    """linear: a straight line; cosine: half a cosine, flat at both ends."""
    controller: Literal["none", "output-change"] = "none"
    """none: every update counts; output-change: those alone that change the output by at most `largest_change`, so that
    `over` is the shortest time the number takes."""
    largest_change: float = 0.1
    """output-change: the norm of an update's change of the output on the first batch, over the norm of that output."""
    measure_every: int = 1
    """output-change: updates from one measurement to the next, all of which it decides for."""

    def __post_init__(self) -> None:
        check_choices(self)
        parse_duration(self.over)
        for name in ("start", "end"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, got {getattr(self, name)}")
        if not self.largest_change > 0:
            raise ValueError(f"largest_change must be above 0, got {self.largest_change}")
        if self.measure_every < 1:
            raise ValueError(f"measure_every must be 1 or more updates, got {self.measure_every}")

    def in_updates(self, updates_of: UpdatesOf) -> "AdaptiveConfig":
        """The same schedule with `over` in updates."""
        return replace(self, over=updates_of(self.over))


def adaptive_value(schedule: AdaptiveConfig, update: int) -> float:
    """The number at `update`, counted from 1; 0 gives `start`, and `over` and all later ones give `end`.

    Where a controller decides which updates count, `update` is how many have. `over` must be in updates
    (`AdaptiveConfig.in_updates`). Raises ValueError for update < 0.
    """
    if update < 0:
        raise ValueError(f"updates are counted from 1, and 0 is before the first, got {update}")
    share = min(1.0, update / int(schedule.over))
    if schedule.shape == "cosine":
        share = 0.5 - 0.5 * math.cos(math.pi * share)
    # Exact at both ends whatever they are.
    return (1 - share) * schedule.start + share * schedule.end


@dataclass(slots=True)
class Permitted:
    """How many updates have counted for a number that moves only where the last measurement permits it."""

    counted: int = 0
    permitted: bool = False
    """By the last measurement; there is none before the first update."""

    def next_update(self) -> int:
        """Begin an update: it counts where it is permitted. Returns how many have."""
        self.counted += self.permitted
        return self.counted

    def measured(self, change: float, largest_change: float) -> None:
        """Take in how far an update has changed the output. What is not finite permits nothing."""
        self.permitted = change <= largest_change
