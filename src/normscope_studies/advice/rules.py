"""The rates that rules name for a case, by constants of cases that share nothing with it, and what they cost."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from normscope.choosing.rates import ADAM, KnownRate, RateFacts, RateLaw, known_rates

from .cases import AdviceCase, rate_of
from .ladder import Ladder

NAIVE = "median of the optimiser"
CONSTANT = "best constant in hindsight"
FOLKLORE, FOLKLORE_RATE, FOLKLORE_WARMUP = "1e-3, 10 % warm-up", -3.0, 0.1
STEP_LAW = "Step Law"
KNOWN, PROBE = "known rates", "probe"
LIGHTNING, LR_FINDER = "Lightning's finder", "pytorch-lr-finder"
WAYS = (KNOWN, PROBE, NAIVE, CONSTANT, FOLKLORE, STEP_LAW, LIGHTNING, LR_FINDER)
"""In the order in which they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A case that learned: its ladder of the first horizon, and what is known of it without one."""

    ladder: Ladder
    facts: RateFacts
    parameters: int
    """Beside embeddings and heads."""
    finders: Mapping[str, float | None] = field(default_factory=dict)
    """By the tool's name: the rate that it reads from a range test."""

    @property
    def case(self) -> AdviceCase:
        return self.ladder.case

    @property
    def optimizer(self) -> str:
        """Adam for those that bear its rates, Muon apart."""
        return ADAM if self.case.optimizer == "adamw" else self.case.optimizer


def apart(one: Looked, others: Sequence[Looked]) -> list[Looked]:
    """Those that share neither model nor text nor a scheme of initial weights with it."""
    return [other for other in others if one.case.apart(other.case)]


def law_without(one: Looked, others: Sequence[Looked]) -> RateLaw:
    """The law of recipes and of the ladders of other cases, those of the study's own earlier results left out."""
    ours = [
        KnownRate(family=other.case.family, facts=other.facts, rate=10**other.ladder.best, published=False)
        for other in apart(one, others)
    ]
    return RateLaw.fitted([*(known for known in known_rates() if known.published), *ours])


def known_rate(one: Looked, others: Sequence[Looked]) -> float:
    """log10 of the law's rate."""
    return math.log10(law_without(one, others)(one.facts))


def naive_rate(one: Looked, others: Sequence[Looked]) -> float | None:
    """log10 of the median best rate of its optimiser in other cases; None without one."""
    rates = [other.ladder.best for other in apart(one, others) if other.optimizer == one.optimizer]
    return float(np.median(rates)) if rates else None


def hindsight_rate(one: Looked, others: Sequence[Looked]) -> float:
    """log10 of the rung that costs all cases of its optimiser least in the median, itself among them."""
    own = [other for other in others if other.optimizer == one.optimizer]
    rungs = {step for other in own for step in other.ladder.outcomes}

    def cost(step: int) -> float:
        rate = math.log10(rate_of(step))
        return float(np.median([min(1.0, other.ladder.regret(other.ladder.at(rate))) for other in own]))

    return math.log10(rate_of(min(rungs, key=lambda step: (cost(step), step))))


def step_law(parameters: int, tokens: int) -> float:
    """log10 of the peak rate of Li et al. 2025 (arXiv:2503.04715, eq. 1), which was fitted to AdamW.

    parameters: without embeddings; tokens: of the whole training.
    """
    return math.log10(1.79) - 0.713 * math.log10(parameters) + 0.307 * math.log10(tokens)


def without_training(one: Looked, others: Sequence[Looked]) -> dict[str, float | None]:
    """log10 of what every rule names that needs no look, and of what range tests read."""
    case = one.case
    tools = {name: math.log10(rate) if rate else None for name, rate in one.finders.items()}
    return {
        KNOWN: known_rate(one, others),
        NAIVE: naive_rate(one, others),
        CONSTANT: hindsight_rate(one, others),
        FOLKLORE: FOLKLORE_RATE,
        STEP_LAW: step_law(one.parameters, case.tokens * one.ladder.updates) if one.optimizer == ADAM else None,
        **tools,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRate:
    """A rate that a rule named for a case, and what a training at it ended at."""

    looked: Looked
    rate: float
    """log10."""
    nats: float

    @property
    def lost_nats(self) -> float:
        """Against the best of the ladder."""
        return max(0.0, self.nats - self.looked.ladder.lowest_nats)

    @property
    def regret(self) -> float:
        """As a share of what the best gained."""
        return self.looked.ladder.regret(self.nats)

    @property
    def stuck(self) -> bool:
        return self.looked.ladder.stuck(self.nats)

    def within(self, factor: float) -> bool:
        """Of the best rate."""
        return abs(self.rate - self.looked.ladder.best) <= math.log10(factor)


Named = Mapping[str, Sequence[NamedRate]]
"""By rule, in the order of the cases it names a rate for."""


def beats(named: Sequence[NamedRate], other: Sequence[NamedRate]) -> tuple[list[bool], list[str]]:
    """Whether a rule lost less than another, in every case in which they differ, and the families of these cases."""
    there = {one.looked.case.name: one.regret for one in other}
    pairs = [(one, there[one.looked.case.name]) for one in named if one.looked.case.name in there]
    apart = [(one, lost) for one, lost in pairs if one.regret != lost]
    return [one.regret < lost for one, lost in apart], [one.looked.case.family for one, _ in apart]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How far the best rate of a case is from that of its shortest trainings, and what other cases foretell."""

    case: AdviceCase
    shortest: Ladder
    longer: Ladder
    foretold: float
    """Decades."""

    @property
    def found(self) -> float:
        """Decades."""
        return self.longer.best - self.shortest.best

    @property
    def near(self) -> bool:
        """Within a factor of 1.5."""
        return abs(self.found - self.foretold) <= math.log10(1.5)


def moves(ladders: Mapping[AdviceCase, Sequence[Ladder]]) -> list[Moved]:
    """Of every case and each horizon beyond its shortest: a power of the horizon, its median over cases apart from it.

    ladders: by case, of each horizon.
    """
    pairs: list[tuple[AdviceCase, Ladder, Ladder, float]] = []
    for case, several in ladders.items():
        rising = sorted((one for one in several if one.learned), key=lambda one: one.updates)
        pairs += [(case, rising[0], one, math.log10(one.updates / rising[0].updates)) for one in rising[1:]]
    found = []
    for case, shortest, longer_one, span in pairs:
        powers = [(b.best - a.best) / length for other, a, b, length in pairs if case.apart(other)]
        foretold = span * float(np.median(powers)) if powers else 0.0
        found.append(Moved(case=case, shortest=shortest, longer=longer_one, foretold=foretold))
    return found


def quantile_of(named: Sequence[NamedRate], of: Callable[[NamedRate], float], share: float) -> float:
    """One that is among them, so that trainings that ended nowhere have their place."""
    return float(np.quantile([of(one) for one in named], share, method="higher")) if named else math.nan
