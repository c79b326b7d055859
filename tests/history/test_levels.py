"""Levels of a long log, worked out together, beside the definition one by one."""

import math
from statistics import median

import numpy as np
import pytest

from normscope.history.episodes import (
    LEAST,
    LONG_WINDOW,
    WINDOW,
    level_of,
    levels,
    logarithms,
    rolling_levels,
)


def one_by_one(logs: list[float]) -> list[tuple[float, float] | None]:
    """Level and noise before every value by the definition, without looking ahead."""
    found: list[tuple[float, float] | None] = []
    kept: list[float] = []
    out, lowest = 0, math.inf
    for value in logs:
        level = None
        if len(kept) >= LEAST:
            now = level_of(kept)
            lowest = min(lowest, now.middle)
            level = type(now)(lowest, now.spread)
        elif not math.isfinite(value):
            level = type(level_of([0.0] * LEAST))(median(kept) if kept else math.nan, math.inf)
        found.append(None if level is None else (level.middle, level.spread))
        stands_out = level is not None and value > (level.upper if out else level.limit)
        out = out + 1 if stands_out else 0
        if out > WINDOW:
            kept, out, lowest = [], 0, math.inf
        if not out and math.isfinite(value):
            kept.append(value)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_levels_of_a_long_log_are_those_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(50, 1500))
    losses = 3 * np.exp(-np.arange(count) / 300) + 2
    losses += rng.choice([0.01, 0.05, 0.2]) * rng.standard_normal(count)
    for _ in range(int(rng.integers(0, 6))):
        at = int(rng.integers(0, count))
        losses[at : at + int(rng.integers(1, 80))] *= rng.choice([0.5, 1.2, 2.0, 5.0])
    if seed % 3 == 0:
        losses[rng.integers(0, count)] = math.inf
    logs = logarithms(losses.tolist())
    found = [None if one is None else (one.middle, one.spread) for one in levels(logs)]
    assert repr(found) == repr(one_by_one(logs))


def test_rolling_levels_are_those_of_every_window() -> None:
    values = np.random.default_rng(1).standard_normal(LONG_WINDOW + 30)
    middles, spreads = rolling_levels(values)
    alone = [level_of(values[:at].tolist()) for at in range(LONG_WINDOW, len(values))]
    assert middles == [one.middle for one in alone]
    assert spreads == [one.spread for one in alone]
