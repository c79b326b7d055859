"""Fitting how a probe is read to short trainings about the rate that each family's rule expects."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from normscope.doctor.advise.reading import Reading
from normscope.doctor.advise.rule import ProbeRule

from .fit import CONFIDENCE, NO_PROBE, RIDGE, left_out, linear, quantile
from .truth import Known

FACTS = ("lowest", "gain", "spread_below", "spread", "spread_above")
"""What the best rate is read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """A case, the rate that its family's rule expects without a training, and what short trainings about it show."""

    known: Known
    expected: float
    """log10."""
    reading: Reading

    @property
    def family(self) -> str:
        return self.known.case.family

    def best(self, rule: ProbeRule) -> float:
        """log10 of the rate that the probe names."""
        return self.expected + rule.beyond(self.reading)


def fitted_probe(cases: Sequence[Probed], updates: int) -> ProbeRule:
    """Least squares with a ridge; the interval from left-out families. updates: of a whole probe."""
    rule = _fitted(cases, updates)
    by_case = {one.known.case: one for one in cases}
    off = []
    for rest, left in left_out([one.known for one in cases]):
        without = _fitted([by_case[one.case] for one in rest], updates)
        off += [one.best - by_case[one.case].best(without) for one in left]
    return replace(rule, low=quantile(off, (1 - CONFIDENCE) / 2), high=quantile(off, (1 + CONFIDENCE) / 2))


def _fitted(cases: Sequence[Probed], updates: int) -> ProbeRule:
    beyond = linear([one.reading for one in cases], FACTS, [one.known.best - one.expected for one in cases], RIDGE)
    return replace(NO_PROBE, beyond=beyond, updates=updates)
