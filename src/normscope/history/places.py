"""The quantity that left its course, with its place and time: sub-layers, logits, and tokens that
become alike.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from .episodes import (
    ALIKE,
    LATEST,
    LONG_WINDOW,
    STANDS_OUT,
    Episode,
    level_of,
    logarithms,
    max_similarity,
    rolling_levels,
)
from .record import History, LoggedSeries

GROWN = 3.0
"""Times by which a sub-layer's quantity has to exceed its own past, and what the others have
become, to stand out.
"""
QUANTITIES = {
    "update_ratio": "the step against the weights",
    "share": "the branch against the stream",
    "stream_square": "the mean square of the stream",
    "gradient_norm": "the gradient's norm",
}
"""The quantities with words, in the order of cause and effect: a step, what it does to the forward
pass, and that to gradients.
"""
_PAST = 9
_AT_ONCE = 4096
"""Values whose levels are worked out together."""
_LARGEST_LOG = math.log(sys.float_info.max)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeadingSublayer:
    """A sub-layer that stands out."""

    sublayer: str
    quantity: str
    update: int
    """The update at which it stood out first, as far as it was measured."""
    times: float
    """The factor of its own median before."""


def first_place(history: History, episode: Episode) -> _LeadingSublayer | None:
    """Returns the sub-layer that stood out first around the onset; None where none was recorded, or
    none leads the others.

    Looked at are the measurements from the last before the onset to the second after it. A
    sub-layer stands out whose quantity is three times its own median before or more, and three
    times further off than the median sub-layer's.
    """
    for quantity in QUANTITIES:
        for update, grown in _grown(history, quantity, episode.onset):
            most = max(grown, key=grown.__getitem__)
            if grown[most] >= GROWN * max(1.0, median(grown.values())):
                return _LeadingSublayer(
                    sublayer=most, quantity=quantity, update=update, times=grown[most]
                )
    return None


def run_away(history: History, episode: Episode) -> _LeadingSublayer | None:
    """Returns the sub-layer that stood out first, where it did by its updates."""
    place = first_place(history, episode)
    return place if place is not None and place.quantity == "update_ratio" else None


def departures(history: History) -> list[tuple[int, list[_LeadingSublayer]]]:
    """Returns the updates at which sub-layers leave their own course, each with those that do.

    A quantity leaves it that is three times its level, the median of nine measurements, and six
    standard deviations of its noise above it. Of measurements that follow each other within nine
    the first is given.
    """
    found: dict[int, list[_LeadingSublayer]] = {}
    for quantity in QUANTITIES:
        for place, series in history.of_sublayers(quantity).items():
            for update, times in _jumps(series.finite()):
                leading = _LeadingSublayer(
                    sublayer=place, quantity=quantity, update=update, times=times
                )
                found.setdefault(update, []).append(leading)
    measured = sorted(
        {u for parts in history.sublayers.values() for one in parts.values() for u in one.updates}
    )
    out = [at for at, update in enumerate(measured) if update in found]
    firsts = [at for before, at in zip([-LATEST, *out], out, strict=False) if at - before >= LATEST]
    return [(measured[at], found[measured[at]]) for at in firsts]


def _jumps(series: LoggedSeries) -> Iterator[tuple[int, float]]:
    """The updates of values that are far above those before, each with how many times its level it
    is.
    """
    logs = logarithms(series.values)
    for update, value, level in zip(series.updates, logs, _levels_before(logs), strict=True):
        if level is None:
            continue
        middle, spread = level
        if value > middle + max(STANDS_OUT * spread, math.log(GROWN)):
            yield update, math.exp(min(value - middle, _LARGEST_LOG))


def _levels_before(logs: Sequence[float]) -> Iterator[tuple[float, float] | None]:
    """Yields middle and spread of the level before each value, of all values before it; None for
    the first `LATEST`.
    """
    together = all(map(math.isfinite, logs)) and len(logs) > LONG_WINDOW
    for at in range(LONG_WINDOW if together else len(logs)):
        if at < LATEST:
            yield None
        else:
            level = level_of(logs[max(0, at - LONG_WINDOW) : at])
            yield level.middle, level.spread
    for start in range(LONG_WINDOW, len(logs) if together else 0, _AT_ONCE):
        values = np.array(logs[start - LONG_WINDOW : start + _AT_ONCE])
        yield from zip(*rolling_levels(values), strict=True)


def growth(history: History, quantity: str, onset: int) -> float | None:
    """Returns the largest factor, around the onset, of the median sub-layer's quantity over its own
    past; None without any.
    """
    return max(
        (median(grown.values()) for _, grown in _grown(history, quantity, onset)), default=None
    )


def _grown(history: History, quantity: str, onset: int) -> Iterator[tuple[int, dict[str, float]]]:
    """The last measured update before the onset and two from it on, each with what sub-layers are
    of their own past.
    """
    series = {place: found.finite() for place, found in history.of_sublayers(quantity).items()}
    known = sorted({update for one in series.values() for update in one.updates})
    before, after = [u for u in known if u < onset], [u for u in known if u >= onset]
    for update in [*before[-1:], *after[:2]]:
        grown = {
            place: times
            for place, one in series.items()
            if (times := _times_of_past(one, update)) is not None
        }
        if grown:
            yield update, grown


def _times_of_past(series: LoggedSeries, update: int) -> float | None:
    """Returns a value over the median of those before it; None without both."""
    past = [v for v in series.before(update).values[-_PAST:] if v > 0]
    here = [v for u, v in zip(series.updates, series.values, strict=True) if u == update]
    return here[0] / median(past) if past and here and math.isfinite(here[0]) else None


def grown_at(history: History, episode: Episode) -> tuple[int, float] | None:
    """Returns the first measured update around the onset at which logits are three times their
    past, and how many times.
    """
    logits = history.logit_deviation.finite()
    past = logits.before(episode.onset)
    for update in [*past.updates[-1:], *logits.since(episode.onset).updates]:
        value, before = logits.at(update), [v for v in past.before(update).values[-_PAST:] if v > 0]
        if value is not None and before and value >= GROWN * median(before):
            return update, value / median(before)
    return None


def alike_at(history: History, episode: Episode) -> int | None:
    """Returns the first measured update from the onset on at which the tokens that leave a stack
    are alike, and stay so.
    """
    known = sorted(
        {
            u
            for s in history.stacks.values()
            if "end_correlation" in s
            for u in s["end_correlation"].updates
        }
    )
    after = [update for update in known if update >= episode.onset]
    if not after or max_similarity(history, history.last_update) < ALIKE:
        return None
    return next((update for update in after if max_similarity(history, update) >= ALIKE), None)
