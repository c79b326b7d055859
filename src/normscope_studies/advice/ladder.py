"""The trainings of a case at a ladder of rates, and what became of them: the best rate, and where they are stuck."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from normscope.choosing.rates import RateFacts
from normscope.measure.line import lowest

from ..engine.pieces import Pieces
from .cases import AdviceCase, AdviceConfig, rate_of
from .training import train_once

_TrainingOutcome = Mapping[str, Any]
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


def nats(outcome: _TrainingOutcome) -> float:
    """Held-out loss at the end, infinite where it was not finite."""
    return math.inf if outcome["valid_nats"] is None else float(outcome["valid_nats"])


def climb(start: int, train: Callable[[int], _TrainingOutcome]) -> dict[int, _TrainingOutcome]:
    """Outcomes by rung of the ladder.

    By factors of four from `start`: up until two in turn end more than the regret above the best, or learn no more than
    how frequent tokens are; down until one ends more than the regret above the best; then both neighbours of the best
    rung. train: by rung.
    """
    found: dict[int, _TrainingOutcome] = {}

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


def trainings(case: AdviceCase, config: AdviceConfig, pieces: Pieces) -> dict[int, _TrainingOutcome]:
    """Of a case, without warm-up."""
    start = FIRST_STEPS.get(case.optimizer, FIRST_STEPS["adam"])
    return climb(start, lambda step: at_rate(case, rate_of(step), config, pieces))


def piece_of(
    case: AdviceCase, name: str, config: AdviceConfig, pieces: Pieces, measure: Callable[..., Any], **settings: Any
) -> Any:
    """What a function measures of a case by these settings and on the texts, from its piece or now."""
    settings |= config.places
    return pieces.get(f"{case.name}/{name}", {**asdict(case), **settings}, measure, case, **settings)


def at_rate(
    case: AdviceCase, rate: float, config: AdviceConfig, pieces: Pieces, *, warmup_updates: int = 0
) -> _TrainingOutcome:
    """One of them, from its piece or trained now; with a warm-up it is longer by that."""
    name = f"rate-{rate:.3g}" + (f"_warmup-{warmup_updates}" if warmup_updates else "")
    settings = {"rate": rate, "updates": config.updates + warmup_updates, "warmup_updates": warmup_updates}
    found: _TrainingOutcome = piece_of(case, name, config, pieces, train_once, **settings)
    return found


_HALF_STEP = 0.5 * math.log10(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedCase:
    """A case with what known rates are asked with and what became of its trainings, by rung of the ladder of rates."""

    case: AdviceCase
    facts: RateFacts
    outcomes: Mapping[int, _TrainingOutcome]

    @property
    def lowest_nats(self) -> float:
        return min(map(nats, self.outcomes.values()))

    @property
    def unigram_nats(self) -> float:
        return float(next(iter(self.outcomes.values()))["unigram_nats"])

    @property
    def learned(self) -> bool:
        """Whether any rate learnt more than how frequent tokens are, by at least the regret."""
        return self.lowest_nats < self.unigram_nats - REGRET_NATS

    @property
    def best(self) -> float:
        """log10 of the rate whose loss is lowest, by a parabola through it and its neighbours, half a rung off at
        most."""
        steps = sorted(self.outcomes)
        at = min(range(len(steps)), key=lambda place: nats(self.outcomes[steps[place]]))
        here = math.log10(rate_of(steps[at]))
        found = lowest([_decades(step) for step in steps], [nats(self.outcomes[step]) for step in steps])
        return min(max(found, here - _HALF_STEP), here + _HALF_STEP)

    @property
    def good(self) -> tuple[float, float]:
        """log10 of the lowest and the highest rate within the regret of the best, with none between that is not.

        Between rungs by a straight line of the loss; where the ladder ends before, its end.
        """
        steps = sorted(self.outcomes)
        limit = self.lowest_nats + REGRET_NATS
        at = min(range(len(steps)), key=lambda place: nats(self.outcomes[steps[place]]))
        low = high = at
        while low > 0 and nats(self.outcomes[steps[low - 1]]) <= limit:
            low -= 1
        while high < len(steps) - 1 and nats(self.outcomes[steps[high + 1]]) <= limit:
            high += 1
        below = self._edge(steps[low], steps[low - 1]) if low > 0 else _decades(steps[0])
        above = self._edge(steps[high], steps[high + 1]) if high < len(steps) - 1 else _decades(steps[-1])
        return below, above

    def _edge(self, good: int, bad: int) -> float:
        limit, inside = self.lowest_nats + REGRET_NATS, nats(self.outcomes[good])
        # A loss far away would put the edge at the good rung itself.
        outside = min(nats(self.outcomes[bad]), self.lowest_nats + 1)
        share = (limit - inside) / (outside - inside)
        return _decades(good) + share * (_decades(bad) - _decades(good))

    def stuck_at(self, loss_nats: float) -> bool:
        """Whether a training that ends there gained less than a share of what the best one gained on the unigrams."""
        gain = self.unigram_nats - self.lowest_nats
        return not loss_nats < self.unigram_nats - STUCK_SHARE * gain

    def labels(self) -> dict[int, bool]:
        """Whether each rung at and above the best is stuck: below it a training is slow, which is another thing."""
        lowest = min(self.outcomes, key=lambda step: nats(self.outcomes[step]))
        return {step: self.stuck_at(nats(found)) for step, found in self.outcomes.items() if step >= lowest}

    @property
    def stuck(self) -> float | None:
        """log10 of the rate from which on every training is stuck, half-way between rungs; None where the last is
        not."""
        labels = sorted(self.labels().items())
        if not labels[-1][1]:
            return None
        for (below, ended), (step, _) in reversed(list(pairwise(labels))):
            if not ended:
                return 0.5 * (_decades(below) + _decades(step))
        return None


def _decades(step: int) -> float:
    return math.log10(rate_of(step))
