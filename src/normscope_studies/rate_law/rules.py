"""Rules that name a rate for a model without a training: the law of known rates, and naive ones."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from normscope.choosing.case import NEAR, counts_for
from normscope.choosing.law import CriticalBatch, KnownRate, RateLaw
from normscope.choosing.recipes import recipes

from .ladders import PublishedSweep

RateRule = Callable[[PublishedSweep], float]
LAW = "the law"
STEP_LAW = "Step Law's formula, fitted to these trainings"


def law_without_shape(
    sweeps: Sequence[PublishedSweep],
    others: Sequence[KnownRate],
    critical: CriticalBatch,
) -> RateRule:
    """Returns the law as it is fitted without any ladder of the shape that it is asked of."""
    laws = {}
    for family in {one.family for one in sweeps}:
        known = [*others, *(one.known for one in sweeps if one.family != family)]
        laws[family] = RateLaw.fitted(known, critical)
    return lambda one: laws[one.family](one.facts)


def law_without(
    left_out: Callable[[PublishedSweep], bool],
    sweeps: Sequence[PublishedSweep],
    others: Sequence[KnownRate],
    critical: CriticalBatch,
) -> RateRule:
    """Returns the law as it is fitted without the ladders that `left_out` names."""
    known = [*others, *(one.known for one in sweeps if not left_out(one))]
    fitted = RateLaw.fitted(known, critical)
    return lambda one: fitted(one.facts)


def naive_rules() -> Mapping[str, RateRule]:
    """Returns what people do without a law, and one published formula that knew the trainings."""
    read = [one for one in recipes() if counts_for("adamw", one.optimizer)]

    def near_width(one: PublishedSweep) -> float:
        near = [known for known in read if 1 / NEAR <= known.width / one.width <= NEAR]
        return statistics.median(known.peak_lr for known in near)

    def kaplan(one: PublishedSweep) -> float:
        # Kaplan et al. 2020, arXiv:2001.08361, equation D.1.
        return 0.003239 - 0.0001395 * math.log(one.parameters)

    def step_law(one: PublishedSweep) -> float:
        # Li et al. 2025, arXiv:2503.04715, equation 1.
        return float(1.79 * one.parameters**-0.713 * one.tokens**0.307)

    return {
        "1e-3": lambda one: 1e-3,
        "3e-4": lambda one: 3e-4,
        "median of recipes near the width": near_width,
        "Kaplan et al. 2020": kaplan,
        STEP_LAW: step_law,
    }
