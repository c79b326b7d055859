"""The rates around the largest that trains: a ladder climbed until training fails, with a tenth of every failure."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ..protocol.pieces import Pieces
from .cases import TENTH, Case, rate_of, searched_steps
from .training import train_once

SLOWLY = 0.1
"""Nats by which a training must end lower than one at the step below to count as on its way."""
Outcome = Mapping[str, Any]
"""What `train_once` returns."""


def learned(outcome: Outcome) -> bool:
    """Better at the end than the entropy of tokens taken one by one."""
    nats = outcome["valid_nats"]
    return nats is not None and nats < outcome["unigram_nats"]


def diverged(outcome: Outcome, tenth: Outcome) -> bool:
    """No better than that entropy, or not finite, while a tenth of the rate does better."""
    return not learned(outcome) and _nats(tenth) < _nats(outcome)


def climb(start: int, highest: int, train: Callable[[int], Outcome]) -> dict[int, Outcome]:
    """Outcomes by step of the ladder: up from `start` until two steps running fail, down until one learns.

    A step that has not learned yet, but ends lower than the one before, has not failed: it was only slow. Each that
    failed has a tenth of it below. train: by step of the ladder.
    """
    found: dict[int, Outcome] = {}
    step, failed = start, 0
    while step <= highest and failed < 2:
        found[step] = train(step)
        slow = step - 1 in found and _nats(found[step]) < _nats(found[step - 1]) - SLOWLY
        failed = 0 if learned(found[step]) or slow else failed + 1
        step += 1
    step = start - 1
    while not any(map(learned, found.values())) and step > start - 3 * TENTH:
        found[step] = train(step)
        step -= 1
    for step in [step for step, outcome in found.items() if not learned(outcome)]:
        if step - TENTH not in found:
            found[step - TENTH] = train(step - TENTH)
    return dict(sorted(found.items()))


def _nats(outcome: Outcome) -> float:
    return math.inf if outcome["valid_nats"] is None else float(outcome["valid_nats"])


def trainings(case: Case, pieces: Pieces, *, updates: int, max_tokens: int) -> dict[int, Outcome]:
    """Of a case, without warm-up."""

    def train(step: int) -> Outcome:
        return training(case, rate_of(step), pieces, updates=updates, max_tokens=max_tokens)

    return climb(*searched_steps(case.optimizer), train)


def training(
    case: Case, rate: float, pieces: Pieces, *, updates: int, max_tokens: int, warmup_updates: int = 0
) -> Outcome:
    """One of them, from its piece or trained now."""
    settings = {"updates": updates, "max_tokens": max_tokens, "warmup_updates": warmup_updates}
    warmup = f"_warmup-{warmup_updates}" if warmup_updates else ""
    name = f"{case.name}/rate-{rate:.3g}{warmup}"
    found: Outcome = pieces.get(name, {**asdict(case), **settings, "rate": rate}, train_once, case, rate, **settings)
    return found
