"""The trainings of a case: a ladder of rates, coarse until the best lies inside, then every rung about the best."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ..engine.pieces import Pieces
from .cases.case import Case, rate_of
from .config import AdviceConfig
from .trained.training import train_once

Outcome = Mapping[str, Any]
"""What `train_once` returns."""
COARSE = 2
"""Rungs between coarse rates: a factor of four."""
MOST_COARSE = 5
"""On either side of where the search begins."""
FIRST_STEPS = {"adam": 1, "adamw": 1, "radam": 3, "sgd": 9, "lion": -2}
"""Where it begins, by optimiser; another begins as Adam."""
REGRET_NATS = 0.1
"""A rate is good where the loss ends within this of the lowest."""
STUCK_SHARE = 0.25
"""A training is stuck where it gained less than this share of what the best gained over the unigram entropy."""


def nats(outcome: Outcome) -> float:
    """Held-out loss at the end, infinite where it was not finite."""
    return math.inf if outcome["valid_nats"] is None else float(outcome["valid_nats"])


def climb(start: int, train: Callable[[int], Outcome]) -> dict[int, Outcome]:
    """Outcomes by rung of the ladder.

    By factors of four from `start`: up until two in turn end more than the regret above the best, or learn no more than
    how frequent tokens are; down until one ends more than the regret above the best; then both neighbours of the best
    rung. train: by rung.
    """
    found: dict[int, Outcome] = {}

    def seen(step: int) -> float:
        if step not in found:
            found[step] = train(step)
        return nats(found[step])

    def best() -> float:
        return min(map(nats, found.values()))

    seen(start)
    known = found[start]["unigram_nats"]
    for direction, bad_enough in ((1, 2), (-1, 1)):
        bad = 0
        for far in range(1, MOST_COARSE + 1):
            now = seen(start + direction * COARSE * far)
            bad = bad + 1 if now > best() + REGRET_NATS or (direction > 0 and now > known - REGRET_NATS) else 0
            if bad == bad_enough:
                break
    lowest = min(found, key=lambda step: (nats(found[step]), step))
    for step in (lowest - 1, lowest + 1):
        seen(step)
    return dict(sorted(found.items()))


def trainings(case: Case, config: AdviceConfig, pieces: Pieces) -> dict[int, Outcome]:
    """Of a case, without warm-up."""
    start = FIRST_STEPS.get(case.optimizer, FIRST_STEPS["adam"])
    return climb(start, lambda step: at_rate(case, rate_of(step), config, pieces))


def at_rate(case: Case, rate: float, config: AdviceConfig, pieces: Pieces, *, warmup_updates: int = 0) -> Outcome:
    """One of them, from its piece or trained now; with a warm-up it is longer by that."""
    settings: dict[str, Any] = {
        "updates": config.updates + warmup_updates,
        **config.places,
        "warmup_updates": warmup_updates,
    }
    warmup = f"_warmup-{warmup_updates}" if warmup_updates else ""
    name = f"{case.name}/rate-{rate:.3g}{warmup}"
    found: Outcome = pieces.get(name, {**asdict(case), **settings, "rate": rate}, train_once, case, rate, **settings)
    return found
