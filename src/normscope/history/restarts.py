"""A rate that begins again as it began: a schedule that was resumed and counts from 0."""

from itertools import pairwise

from .record import LoggedSeries

_ALIKE = 0.1
"""Share by which two warm-ups of one schedule may differ in length and in what they reach."""


def begins_anew(rates: LoggedSeries, at: int) -> bool:
    """Tells whether the rate rises from a place on as it rose at the beginning: as long, and as
    high.
    """
    first, again = _rise(rates, 0), _rise(rates, at)
    if first is None or again is None:
        return False
    (length, reached), (length_again, reached_again) = first, again
    step = max(b - a for a, b in pairwise(rates.updates))
    return (
        abs(length_again - length) <= max(step, _ALIKE * length)
        and abs(reached_again - reached) <= _ALIKE * reached
    )


def _rise(rates: LoggedSeries, at: int) -> tuple[int, float] | None:
    """Returns over how many updates a rate rises from a place on, and to what; None where it
    falls.
    """
    end = at
    while end + 1 < len(rates.values) and rates.values[end + 1] > rates.values[end]:
        end += 1
    if end == at:
        return None
    return rates.updates[end] - rates.updates[at], rates.values[end]
