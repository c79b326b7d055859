"""What became of a case's trainings: the best rate, the range that is about as good, and where they are stuck."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from normscope.doctor.advise.facts import Facts
from normscope.measure.line import lowest

from .cases.case import Case, rate_of
from .search import REGRET_NATS, STUCK_SHARE, Outcome, nats

_HALF_STEP = 0.5 * math.log10(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A case with what the doctor sees of it and what became of its trainings, by rung of the ladder of rates."""

    case: Case
    facts: Facts
    outcomes: Mapping[int, Outcome]

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

    def labelled_rates(self) -> list[tuple[float, bool]]:
        """The same with rates in place of rungs."""
        return [(rate_of(step), stuck) for step, stuck in self.labels().items()]

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
