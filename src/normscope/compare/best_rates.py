"""The best rate of what is the same but for rate and seed, and whether another is to be trained."""

import math
from collections.abc import Mapping
from dataclasses import replace

from ..measure.vertex import RateVertex, rate_vertex
from ..report.comparison import contents
from ..report.words import learning_rate, percentage

_FEWEST = 3
"""Rates that a parabola goes through."""
_RARE = 0.025
"""Share of resamples in which an end of the sweep is the lowest, up to which that is not told."""


def with_best_rate(
    curve: contents.RateCurve, losses: Mapping[tuple[int, float], float]
) -> contents.RateCurve:
    """Returns a curve with its best rate, or with the rate that is to be trained next; as it is
    where fewer than three rates have come to their end with some seed.

    losses: by seed and rate, of the runs that have ended; for one that diverged its first loss.
    """
    rates = curve.peak_lrs
    whole = []
    for seed in curve.seeds:
        row = [losses.get((seed, rate), math.nan) for rate in rates]
        if not any(map(math.isnan, row)):
            whole.append(row)
    if len(rates) < _FEWEST or not whole or not any(map(math.isfinite, whole[0])):
        return curve
    found = rate_vertex(rates, whole)
    at_an_end = found.further is not None
    return replace(
        curve,
        summary=f"{curve.summary}; {_in_words(found, len(whole))}",
        vertex_lr=math.nan if at_an_end else found.rate,
        vertex_low=math.nan if at_an_end else found.low,
        vertex_high=math.nan if at_an_end else found.high,
        further_lr=math.nan if found.further is None else found.further,
    )


def _in_words(found: RateVertex, seeds: int) -> str:
    if found.further is not None:
        return (
            f"lowest at the end of the rates, {learning_rate(found.rate)}: train "
            f"{learning_rate(found.further)} too"
        )
    spread = "one seed"
    if seeds > 1:
        low, high = learning_rate(found.low), learning_rate(found.high)
        spread = f"{low} to {high} over resamples of {seeds} seeds"
        if found.undecided > _RARE:
            spread += f", and an end of the rates in {percentage(found.undecided, 0)} of them"
    return f"a parabola through the losses is lowest at {learning_rate(found.rate)} ({spread})"
