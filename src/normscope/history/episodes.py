"""The departures of a loss from its course: spikes, rises that did not come back, and plateaus.

A loss is compared with its own past by medians, so that no outlier decides, and as logarithms:
batches scatter in proportion to the loss, and a rise of a tenth is as bad at 0.5 nats as at 5.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .flat import FlatStretch, Standing, flat_stretch, standing
from .record import History, LoggedSeries

# W = values of a window

WINDOW = 50
LONG_WINDOW = 200
LATEST = 9
LEAST = 20
"""Values from which the noise is taken, values whose median is the level, and the fewest from which
either is.
"""
_FIRST_AHEAD, _MOST_AHEAD = 64, 4096
"""Values whose levels are worked out together, at first and at most."""
NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
STANDS_OUT, LEAST_RISE = 6.0, math.log(1.1)
"""A value stands out that lies six standard deviations above the level, and a tenth of the loss at
least. Of noise that is normal, one value in a billion does; the tenth keeps what is small in a very
smooth loss from standing out."""


@dataclass(frozen=True, slots=True)
class _Level:
    """The level of a loss before an update, as logarithms."""

    middle: float
    spread: float
    """Standard deviation of its noise."""

    @property
    def limit(self) -> float:
        """The level that a value has to exceed to stand out."""
        return self.middle + max(STANDS_OUT * self.spread, LEAST_RISE)

    @property
    def upper(self) -> float:
        """The level that a value that has come back does not exceed."""
        return self.middle + max(3 * self.spread, LEAST_RISE / 2)


def logarithms(values: Sequence[float]) -> list[float]:
    """Returns the logarithms of positive numbers; inf for those that are not finite, and for 0 or
    less the logarithm of the least positive one.
    """
    least = min((v for v in values if math.isfinite(v) and v > 0), default=1.0)
    return [math.log(max(v, least)) if math.isfinite(v) else math.inf for v in values]


def levels(logs: Sequence[float]) -> list[_Level | None]:
    """Returns the level before every value, of the ordinary values before it; None for the first
    `LEAST`.

    Of a value among these that is no number there is one too, without a noise: nothing finite
    stands out of it.

    Values that stand out, and those after them until the loss has come back, do not move the level;
    after `WINDOW` values that do not come back it is taken anew. It does not rise either: a loss
    that creeps up is compared with the lowest level that it had.
    """
    found: list[_Level | None] = []
    kept: list[float] = []
    out, lowest = 0, math.inf
    ahead = _FIRST_AHEAD
    while len(found) < len(logs):
        if not out and len(kept) >= LONG_WINDOW:
            next_ones = logs[len(found) : len(found) + ahead]
            quiet = _quiet_levels(kept, next_ones, lowest)
            kept += next_ones[: len(quiet)]
            found += quiet
            lowest = quiet[-1].middle if quiet else lowest
            # Where nothing stands out more is looked at together, else less is worked out in vain.
            ahead = min(2 * ahead, _MOST_AHEAD) if len(quiet) == ahead else _FIRST_AHEAD
            if len(quiet) == len(next_ones):
                continue
        value = logs[len(found)]
        level = None
        if len(kept) >= LEAST:
            now = level_of(kept)
            lowest = min(lowest, now.middle)
            level = _Level(lowest, now.spread)
        elif not math.isfinite(value):
            level = _Level(median(kept) if kept else math.nan, math.inf)
        found.append(level)
        out = out + 1 if level is not None and value > (level.upper if out else level.limit) else 0
        if out > WINDOW:
            kept = []
            out = 0
            lowest = math.inf
        if not out and math.isfinite(value):
            kept.append(value)
    return found


def _quiet_levels(kept: Sequence[float], next_ones: Sequence[float], lowest: float) -> list[_Level]:
    """Returns the levels before the values that follow, up to the first that stands out or is no
    number: as `levels` has them one by one, worked out together.

    kept: the ordinary values before them, a long window or more. lowest: the lowest level so far.
    """
    finite = np.isfinite(next_ones)
    end = len(next_ones) if finite.all() else int(finite.argmin())
    if not end:
        return []
    values = np.array([*kept[-LONG_WINDOW:], *next_ones[:end]])
    middles, spreads = rolling_levels(values)
    found = []
    for middle, spread, value in zip(middles, spreads, next_ones[:end], strict=False):
        lowest = min(lowest, middle)
        level = _Level(lowest, spread)
        if value > level.limit:
            break
        found.append(level)
    return found


def rolling_levels(values: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    """Returns middle and spread of the level before each value from the `LONG_WINDOW`-th on, as
    `level_of` has them.

    values: finite ones, (N,). A million of them one by one take a minute.
    """
    latest = sliding_window_view(values[LONG_WINDOW - LATEST : -1], LATEST)
    middles = np.median(latest, axis=1)
    steps = np.diff(values[:-1])
    long = _spreads(sliding_window_view(steps, LONG_WINDOW - 1))
    short = _spreads(sliding_window_view(steps[LONG_WINDOW - WINDOW :], WINDOW - 1))
    return middles.tolist(), np.maximum(short, long).tolist()


def _spreads(steps_NW: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the spread of every window of differences, as `_spread` has one."""
    centres = np.median(steps_NW, axis=1, keepdims=True)
    deviations: NDArray[np.float64] = np.median(np.abs(steps_NW - centres), axis=1)
    return NORMAL * deviations / math.sqrt(2)


def level_of(logs: Sequence[float]) -> _Level:
    """Returns the level of the values up to now: the median of the latest, and the noise, which is
    the larger of two windows'.

    The noise is taken from differences of neighbours, which a loss that falls hardly changes. A
    short window follows a noise that grows; a long one keeps a quiet stretch from making what comes
    after it stand out.
    """
    return _Level(
        median(logs[-LATEST:]), max(_spread(logs[-WINDOW:]), _spread(logs[-LONG_WINDOW:]))
    )


def _spread(logs_W: Sequence[float]) -> float:
    steps = [b - a for a, b in pairwise(logs_W)]
    centre = median(steps)
    return NORMAL * median(abs(step - centre) for step in steps) / math.sqrt(2)


NEVER_LEARNED = math.log(1.1)
"""A loss that has fallen by less than a tenth since its first updates has hardly moved."""
ALIKE = 0.9
"""Mean cosine similarity between tokens from which they are alike."""
LEAST_UPDATES = 40
"""Values of a rate or a norm, from which a course is told from a beginning."""


class EpisodeKind(StrEnum):
    SPIKE = "spike"
    """The loss rose and came back."""
    RISE = "rise"
    """A rise of the loss that did not come back."""
    PLATEAU = "plateau"
    """A loss that stopped falling where it should not."""
    SIGN = "sign"
    """Something stands beside the loss that is not as it was meant."""
    NOTE = "note"
    """The same where nothing suffers by it, as far as the log goes."""


UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One departure of the loss from its course, or what is told beside the loss. Losses in
    nats.
    """

    kind: EpisodeKind
    onset: int
    """The first update at which the loss stands out, or from which it does not fall."""
    end: int | None = None
    """The first update at which it was back; None where it never was."""
    loss_before: float = math.nan
    """NaN where it had not been finite before."""
    loss_worst: float = math.nan
    """The highest; inf where the loss was not finite. Of a plateau its median."""
    cause: str = UNKNOWN
    """The id of a known pattern or sign."""
    title: str = "none of the known patterns is borne out"
    place: str = ""
    """The sub-layer that left its course first, the output layer, or why none is named."""
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """The measurements that would decide on the cause; empty for a known cause."""
    attempt: str = ""
    """The remedy to try."""
    flat: FlatStretch | None = None
    """The stretch of a plateau: since when and where the loss is flat ..."""
    standing: Standing | None = None
    """... and what that level says of it."""
    needs_cause: bool = False
    """True for a plateau that its level does not prove: a model that was trained before, or that
    has learned all there is, may stand still as well.
    """


def episodes(history: History) -> list[Episode]:
    """All of them, in the order of their onsets; a plateau only where nothing stood out before."""
    found = _departures(history.loss) or _short_rise(history.loss)
    if any(one.kind is EpisodeKind.RISE for one in found):
        return found
    plateau = _plateau(history)
    return sorted([*found, *([plateau] if plateau else [])], key=lambda one: one.onset)


def _departures(loss: LoggedSeries) -> list[Episode]:
    """Returns the stretches in which the loss stands out of what was before. Those that nearly
    touch are one.
    """
    logs = logarithms(loss.values)
    before = levels(logs)
    found: list[Episode] = []
    start: int | None = None
    for at, (value, level) in enumerate(zip(logs, before, strict=True)):
        if start is None and level is not None and (value == math.inf or value > level.limit):
            start = _first(logs, before, at)
        elif start is not None and (base := before[start]) is not None:
            back = logs[at : at + 2]
            if all(one < math.inf and not one > base.upper for one in back):
                found.append(_episode(loss, start, at, base))
                start = None
    if start is not None and (base := before[start]) is not None:
        found.append(_episode(loss, start, None, base))
    return _joined(found, loss)


_TWICE = math.log(2)


def _short_rise(loss: LoggedSeries) -> list[Episode]:
    """Finds a rise in a loss with too few values for a noise: its last two are twice all that it
    had up to its lowest, or its last three twice the lowest and more than halfway back to the
    highest.

    A log of every 500 updates has no more of a training that is given up, and no noise doubles a
    loss twice.
    """
    logs = logarithms(loss.values)
    if not 3 <= len(logs) <= LEAST:
        return []
    low = logs.index(min(logs))
    lowest, highest = logs[low], max(logs[: low + 1])
    back = max(lowest + _TWICE, (lowest + highest) / 2)
    if low <= len(logs) - 3 and min(logs[-2:]) >= highest + _TWICE:
        start = next(at for at in range(low, len(logs)) if logs[at] > highest)
    elif low <= len(logs) - 4 and min(logs[-3:]) >= back:
        start = next(at for at in range(low, len(logs)) if logs[at] >= back)
    else:
        return []
    return [_episode(loss, start, None, _Level(lowest, 0.0))]


def _first(logs: Sequence[float], before: Sequence[_Level | None], at: int) -> int:
    """Back from where a loss stands out to where it began to rise: over values that were not at the
    level any more.
    """
    base = before[at]
    while base is not None and at > 0 and before[at - 1] is not None and logs[at - 1] > base.upper:
        at -= 1
    return at


def _episode(loss: LoggedSeries, start: int, end: int | None, base: _Level) -> Episode:
    values = loss.values[start:end]
    worst = max((v if math.isfinite(v) else math.inf) for v in values)
    return Episode(
        kind=EpisodeKind.RISE if end is None else EpisodeKind.SPIKE,
        onset=loss.updates[start],
        end=None if end is None else loss.updates[end],
        loss_before=math.exp(base.middle),
        loss_worst=worst,
    )


def _joined(found: Sequence[Episode], loss: LoggedSeries) -> list[Episode]:
    """Joins events of which one begins within a few values after another has ended."""
    joined: list[Episode] = []
    for one in found:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.end is not None
            and one.onset - last.end < LEAST * loss.spacing
        ):
            worst = max(last.loss_worst, one.loss_worst)
            joined[-1] = replace(
                one, onset=last.onset, loss_before=last.loss_before, loss_worst=worst
            )
        else:
            joined.append(one)
    return joined


def is_flat(history: History) -> bool:
    """Tells whether the loss is flat up to the end of the log, at any level."""
    loss = history.loss.finite()
    return flat_stretch(loss, logarithms(loss.values)) is not None


def _plateau(history: History) -> Episode | None:
    """A loss that no longer falls, and should; one that is low is simply learned."""
    loss = history.loss.finite()
    logs = logarithms(loss.values)
    flat = flat_stretch(loss, logs)
    if flat is None:
        return None
    stands = standing(history, flat)
    # No training should end with tokens all alike either.
    alike = max_similarity(history, history.last_update) >= ALIKE
    proved = alike or stands is Standing.FREQUENCIES
    never_fell = median(logs[:LEAST]) - math.log(flat.level_nats) < NEVER_LEARNED
    if not proved and stands is Standing.LEARNED and not never_fell:
        return None
    return Episode(
        kind=EpisodeKind.PLATEAU,
        onset=flat.onset,
        loss_before=loss.values[0],
        loss_worst=flat.level_nats,
        flat=flat,
        standing=stands,
        needs_cause=not proved,
    )


def max_similarity(history: History, update: int) -> float:
    """Returns the largest mean cosine similarity between the tokens that leave any stack, as last
    recorded; 0 without any.
    """
    found = [
        stack["end_correlation"].at(update)
        for stack in history.stacks.values()
        if "end_correlation" in stack
    ]
    return max(
        (value for value in found if value is not None and math.isfinite(value)), default=0.0
    )
