"""Ways to foretell a training: which numbers each goes by, at one rate."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from normscope.doctor.advise.rule import EarlyFacts
from normscope.doctor.advise.short_run import ShortRun

from ..advice.cases import rate_of
from ..advice.ladder import TrainedCase

_LEAST, _MOST = 1e-12, 1e12
"""Between these a change is told apart; beyond them it is as good as none, or has left all bounds."""
FORMULA = ("normed_sums", "normed_depth", "normed_branches")
FIRST_UPDATE = ("reach", "fading", "rise")
"""The doctor's facts: of the formula, and of the first update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLook:
    """A case whose trainings are known, and what was predicted and measured of it."""

    known: TrainedCase
    predicted: float | None
    """The squared change of the stack's output at a rate of 1; None where theory does not follow."""
    rates: Sequence[float]
    changes: Sequence[float | None]
    """Relative squared change of the logits by the first update, at these rates."""
    trials: Mapping[int, ShortRun]
    """Short trainings, by rung."""

    @property
    def name(self) -> str:
        return self.known.case.name

    def first_change(self, rate: float) -> float:
        """log10; between rates by logarithms, the ends' beyond them."""
        decades = [_decades(change) for change in self.changes]
        return float(np.interp(math.log10(rate), [math.log10(one) for one in self.rates], decades))


_WayFacts = Callable[[CaseLook, int], dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What is known of a training before it, or early in it."""

    name: str
    told: str
    numbers: _WayFacts
    """By name, beyond the rate, the formula and the optimiser, which every way is told."""
    alone: str = ""
    """Which of all numbers foretells without constants; empty where none does."""
    applies: Callable[[CaseLook], bool] = lambda looked: True

    def features(self, looked: CaseLook, step: int) -> dict[str, float]:
        """All numbers of a rung of a case's ladder, but for the optimiser."""
        facts = looked.known.facts.values()
        formula = {name: facts[name] for name in FORMULA}
        return {"rate": math.log10(rate_of(step)), **formula, **self.numbers(looked, step)}


def _predicted(looked: CaseLook, step: int) -> dict[str, float]:
    assert looked.predicted is not None
    return {"predicted": _decades(looked.predicted * rate_of(step) ** 2)}


def _first(looked: CaseLook, step: int) -> dict[str, float]:
    return {"measured": looked.first_change(rate_of(step))}


def _facts(looked: CaseLook, step: int) -> dict[str, float]:
    values = looked.known.facts.values()
    return {name: values[name] for name in FIRST_UPDATE}


def _early(updates: int, looked: CaseLook, step: int) -> dict[str, float]:
    early = EarlyFacts.of_trial(looked.known.facts, looked.trials[step], updates)
    return {"least_spread": early.least_spread, "risen": early.risen}


FORMULA_ALONE, PREDICTED, MEASURED, FACTS = "formula", "predicted change", "measured change", "doctor's facts"
FACTS_AND_CHANGE, EARLY, FACTS_AND_EARLY = "facts and change", "first updates", "facts and first updates"


def ways(updates: int) -> list[Way]:
    """All of them; updates: of the short trainings."""
    early = partial(_early, updates)
    short = (
        f"of a short training of {updates} updates at that rate: the least spread between tokens on the way, and how "
        "far the loss has risen"
    )
    return [
        Way(
            name=FORMULA_ALONE,
            told="the rate, the formula's norms and the optimiser, which all others are told as well",
            numbers=lambda looked, step: {},
            alone="rate",
        ),
        Way(
            name=PREDICTED,
            told="the change of the output by the first update as theory predicts it, without a model",
            numbers=_predicted,
            alone="predicted",
            applies=lambda looked: looked.predicted is not None,
        ),
        Way(
            name=MEASURED,
            told="the change of the logits by the first update, measured at that rate",
            numbers=_first,
            alone="measured",
        ),
        Way(
            name=FACTS,
            told="three rates along the first update: where it is as long as the weights, where tokens get the same "
            "answer, where the loss is back at its start",
            numbers=_facts,
        ),
        Way(
            name=FACTS_AND_CHANGE,
            told="the doctor's facts and the measured change",
            numbers=lambda looked, step: _facts(looked, step) | _first(looked, step),
        ),
        Way(name=EARLY, told=short, numbers=early),
        Way(
            name=FACTS_AND_EARLY,
            told=f"the doctor's facts, and {short}",
            numbers=lambda looked, step: _facts(looked, step) | early(looked, step),
        ),
    ]


def _decades(value: float | None) -> float:
    return math.log10(min(max(_MOST if value is None else value, _LEAST), _MOST))
