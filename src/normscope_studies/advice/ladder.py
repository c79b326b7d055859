"""The trainings of a case at a ladder of rates, and what became of them: the best rate, and what
another one costs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from normscope.measure.vertex import lowest

from ..engine.pieces import Pieces
from .cases import AdviceCase, rate_of
from .training import baselines_of, train_once

_TrainingOutcome = Mapping[str, Any]
"""The outcome that `train_once` returns."""
HALF, NEARER_HALF = 3, 2
"""Rungs on either side of where the search begins, at first: where nothing is known, and about a
rung that was best for trainings like these."""
MOST = 6
"""Further ones that are tried beyond an end."""
FIRST_STEPS = {"sgd": 8, "lion": -1}
"""The step at which a learning-rate sweep begins, by optimiser; another begins at 0.004."""
_FIRST = 2
STUCK_SHARE = 0.25
"""A training is stuck where it gained less than this share of what the best gained over the
unigrams.
"""
LEARNED_NATS = 0.1
"""The least gain of a sweep's best over the unigrams; else the case learned at no rate."""
_HALF_STEP = 0.5 * math.log10(2)


class _Texts(Protocol):
    """Settings of a study."""

    @property
    def places(self) -> dict[str, str]:
        """The places of the texts, as measurements take them."""


def nats(outcome: _TrainingOutcome) -> float:
    """Held-out loss at the end, infinite where it was not finite."""
    return math.inf if outcome["valid_nats"] is None else float(outcome["valid_nats"])


def climb(
    start: int, train: Callable[[int], _TrainingOutcome], half: int = HALF
) -> dict[int, _TrainingOutcome]:
    """Outcomes by rung: `half` on either side of `start`, and further ones until the best has two
    on either side.
    """
    found = {step: train(step) for step in range(start - half, start + half + 1)}
    for _ in range(MOST):
        best = _best(found)
        asked = {best - 2, best - 1, best + 1, best + 2} - set(found)
        if not asked:
            break
        found |= {step: train(step) for step in sorted(asked)}
    return dict(sorted(found.items()))


def piece_of(
    case: AdviceCase,
    name: str,
    config: _Texts,
    pieces: Pieces,
    measure: Callable[..., Any],
    **settings: Any,
) -> Any:
    """Returns what a function measures of a case by these settings and on the texts, from its piece
    or now.
    """
    settings |= config.places
    plain = {key: value for key, value in asdict(case).items() if key != "reach"}
    return pieces.get(f"{case.name}/{name}", {**plain, **settings}, measure, case, **settings)


def at_rate(
    case: AdviceCase,
    rate: float,
    config: _Texts,
    pieces: Pieces,
    *,
    updates: int,
    warmup_share: float | None = None,
    seed: int = 1,
) -> _TrainingOutcome:
    """One of them, from its piece or trained now; warmup_share: of the updates, by default the
    case's usual one.
    """
    share = case.usual_warmup_share if warmup_share is None else warmup_share
    warmup = round(share * updates)
    found: _TrainingOutcome = piece_of(
        case,
        f"{updates}_rate-{rate:.3g}_warmup-{warmup}_seed-{seed}",
        config,
        pieces,
        train_once,
        rate=rate,
        updates=updates,
        warmup_updates=warmup,
        seed=seed,
    )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """A case's trainings of one length, by rung."""

    case: AdviceCase
    updates: int
    outcomes: Mapping[int, _TrainingOutcome]
    again: Mapping[int, _TrainingOutcome]
    """The outcomes with another seed: the best rate and its neighbours."""
    unigram_nats: float
    bigram_nats: float

    def nats(self, step: int) -> float:
        """Returns the mean loss over the seeds that there are."""
        both = [nats(seen[step]) for seen in (self.outcomes, self.again) if step in seen]
        return sum(both) / len(both)

    @property
    def best_step(self) -> int:
        """The best of the rates that were trained with every seed."""
        return min(self.again or self.outcomes, key=lambda step: (self.nats(step), step))

    @property
    def lowest_nats(self) -> float:
        return self.nats(self.best_step)

    @property
    def learned(self) -> bool:
        """True where any rate learned more than how frequent tokens are."""
        return self.lowest_nats < self.unigram_nats - LEARNED_NATS

    @property
    def best(self) -> float:
        """log10 of the rate whose loss is lowest, by a parabola through it and its neighbours, half
        a rung off at most."""
        steps = sorted(self.outcomes)
        found = lowest(list(map(decades, steps)), list(map(self.nats, steps)))
        here = decades(self.best_step)
        return min(max(found, here - _HALF_STEP), here + _HALF_STEP)

    @property
    def gain(self) -> float:
        """Nats that the best gains over the bigrams, or over the unigrams where it does not reach
        those.
        """
        beyond = self.bigram_nats - self.lowest_nats
        return beyond if beyond > LEARNED_NATS else self.unigram_nats - self.lowest_nats

    def regret(self, loss_nats: float) -> float:
        """Returns the loss against the best, as a share of the best's gain; 0 where it is lower."""
        return max(0.0, loss_nats - self.lowest_nats) / self.gain

    def stuck(self, loss_nats: float) -> bool:
        """Tells whether a training that ends at this loss gained next to nothing of what the best
        gained on the unigrams.
        """
        return not loss_nats < self.unigram_nats - STUCK_SHARE * (
            self.unigram_nats - self.lowest_nats
        )

    def at(self, rate: float) -> float:
        """Returns the loss at a rate (log10) between rungs, by a straight line; beyond an end, of
        that end.
        """
        steps = sorted(self.outcomes)
        place = (rate - decades(steps[0])) / (decades(1) - decades(0))
        low = min(max(0, math.floor(place)), len(steps) - 1)
        high = min(low + 1, len(steps) - 1)
        share = min(max(0.0, place - low), 1.0)
        ends = self.nats(steps[low]), self.nats(steps[high])
        return (
            ends[0]
            if share == 0
            else ends[1]
            if share == 1
            else ends[0] * (1 - share) + ends[1] * share
        )


def decades(step: int) -> float:
    """log10 of a rung's rate."""
    return math.log10(rate_of(step))


def _trained(
    case: AdviceCase, updates: int, start: int, half: int, config: _Texts, pieces: Pieces
) -> dict[int, _TrainingOutcome]:
    return climb(
        start, lambda step: at_rate(case, rate_of(step), config, pieces, updates=updates), half
    )


def ladder_from(
    case: AdviceCase,
    start: int | None,
    updates: int,
    config: _Texts,
    pieces: Pieces,
    *,
    twice: bool = True,
) -> Ladder:
    """start: the best rung of trainings like these, about which fewer are tried; None where none is
    known.

    twice: whether the best rung and its neighbours are trained with a second seed.
    """
    first, half = (
        (FIRST_STEPS.get(case.optimizer, _FIRST), HALF) if start is None else (start, NEARER_HALF)
    )
    outcomes = _trained(case, updates, first, half, config, pieces)
    best = _best(outcomes)
    near: Sequence[int] = (
        [step for step in (best - 1, best, best + 1) if step in outcomes] if twice else []
    )
    again = {
        step: at_rate(case, rate_of(step), config, pieces, updates=updates, seed=2) for step in near
    }
    known = piece_of(case, "baselines", config, pieces, baselines_of)
    return Ladder(case=case, updates=updates, outcomes=outcomes, again=again, **known)


def _best(outcomes: Mapping[int, _TrainingOutcome]) -> int:
    return min(outcomes, key=lambda step: (nats(outcomes[step]), step))
