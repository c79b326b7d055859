"""How much a loss varies from update to update, and where it stands out of that: medians, so that no outlier decides.

Losses are compared as logarithms: batches scatter in proportion to the loss, and a rise of a tenth is as bad at 0.5
nats as at 5.
"""

# W = values of a window
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

WINDOW, LONG_WINDOW, LATEST, LEAST = 50, 200, 9, 20
"""Values from which the noise is taken, values whose median is the level, and the fewest from which either is."""
NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
STANDS_OUT, LEAST_RISE = 6.0, math.log(1.1)
"""A value stands out that lies six standard deviations above the level, and a tenth of the loss at least. Of noise that
is normal, one value in a billion does; the tenth keeps what is small in a very smooth loss from standing out."""


@dataclass(frozen=True, slots=True)
class Level:
    """Where a loss was before an update, as logarithms."""

    middle: float
    spread: float
    """Standard deviation of its noise."""

    @property
    def limit(self) -> float:
        """What a value has to exceed to stand out."""
        return self.middle + max(STANDS_OUT * self.spread, LEAST_RISE)

    @property
    def upper(self) -> float:
        """What a value that has come back does not exceed."""
        return self.middle + max(3 * self.spread, LEAST_RISE / 2)


def logarithms(values: Sequence[float]) -> list[float]:
    """Of positive numbers; inf for what is not finite, and of 0 or less that of the least positive one."""
    least = min((v for v in values if math.isfinite(v) and v > 0), default=1.0)
    return [math.log(max(v, least)) if math.isfinite(v) else math.inf for v in values]


def levels(logs: Sequence[float]) -> list[Level | None]:
    """The level before every value, of the ordinary values before it; None for the first `LEAST`.

    Values that stand out, and those after them until the loss has come back, do not move the level; after `WINDOW`
    values that do not come back it is taken anew. It does not rise either: a loss that creeps up is compared with the
    lowest level that it had.
    """
    found: list[Level | None] = []
    kept: list[float] = []
    out, lowest = 0, math.inf
    for value in logs:
        level = None
        if len(kept) >= LEAST:
            now = level_of(kept)
            lowest = min(lowest, now.middle)
            level = Level(lowest, now.spread)
        found.append(level)
        out = out + 1 if level is not None and value > (level.upper if out else level.limit) else 0
        if out > WINDOW:
            kept, out, lowest = [], 0, math.inf
        if not out and math.isfinite(value):
            kept.append(value)
    return found


def level_of(logs: Sequence[float]) -> Level:
    """Of the values up to now: the median of the latest, and the noise, which is the larger of two windows'.

    The noise is taken from differences of neighbours, which a loss that falls hardly changes. A short window follows a
    noise that grows; a long one keeps a quiet stretch from making what comes after it stand out.
    """
    return Level(median(logs[-LATEST:]), max(_spread(logs[-WINDOW:]), _spread(logs[-LONG_WINDOW:])))


def _spread(logs_W: Sequence[float]) -> float:
    steps = [b - a for a, b in pairwise(logs_W)]
    centre = median(steps)
    return NORMAL * median(abs(step - centre) for step in steps) / math.sqrt(2)
