"""Fitting how a probe is read to ladders of short trainings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...doctor.advise.probe import FIRST_RATES, SECOND_RATES, combined
from ...doctor.advise.rule import ProbeRule
from ...doctor.advise.trial import Trial
from .fit import CONFIDENCE, NO_PROBE, left_out, quantile
from .truth import Known

_LOSSES = tuple(round(-0.5 + 0.1 * step, 1) for step in range(9))
_LEVELS = tuple(-4.0 + 0.25 * step for step in range(13))
_SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Laddered:
    """A case, the rate that its family's rule expects without a training, and short trainings about that."""

    known: Known
    expected: float
    """log10."""
    trials: Mapping[int, Trial]
    """By rung, a factor of two apart; 0 is at the expected rate."""

    @property
    def family(self) -> str:
        return self.known.case.family

    def read(self, rule: ProbeRule) -> float:
        """What a probe would say, from the rungs that it would have tried or those nearest to them."""
        places = sorted(self.trials)
        updates = max(len(trial.losses) for trial in self.trials.values())
        first = [2 * (place - FIRST_RATES // 2) for place in range(FIRST_RATES)]
        middle = combined([self.trials[place] for place in first], updates, self.expected, rule)
        nearest = sorted(places, key=lambda place: abs(math.log10(self.trials[place].rate) - middle))[:SECOND_RATES]
        chosen = dict.fromkeys([*first, *nearest])
        return combined([self.trials[place] for place in chosen], updates, self.expected, rule)


def fitted_probe(cases: Sequence[Laddered]) -> ProbeRule:
    """By the least mean distance to the best rate, at most a decade counted; the interval from left-out families."""
    rule = _nearest(cases)
    by_case = {one.known.case: one for one in cases}
    off = []
    for rest, left in left_out([one.known for one in cases]):
        without = _nearest([by_case[one.case] for one in rest])
        off += [one.best - by_case[one.case].read(without) for one in left]
    return replace(rule, low=quantile(off, (1 - CONFIDENCE) / 2), high=quantile(off, (1 + CONFIDENCE) / 2))


def _nearest(cases: Sequence[Laddered]) -> ProbeRule:
    best, found = math.inf, NO_PROBE
    for loss in _LOSSES:
        for level in _LEVELS:
            alone = replace(NO_PROBE, loss=loss, level=level, share=1.0)
            read = np.array([one.read(alone) for one in cases])
            expected = np.array([one.expected for one in cases])
            truth = np.array([one.known.best for one in cases])
            for share in _SHARES:
                off = float(np.minimum(np.abs(share * read + (1 - share) * expected - truth), 1.0).mean())
                if off < best - 1e-12:
                    best, found = off, replace(alone, share=share)
    return found
