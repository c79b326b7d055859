"""The rates that rules name for a case, by constants of cases that share nothing with it, and what
they cost.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from normscope.choosing.law import ADAM, KnownRate, RateFacts, RateLaw, known_rates
from normscope.measure import Estimate

from ..engine.estimates import jackknife
from .cases import AdviceCase, rate_of
from .ladder import Ladder, decades

NAIVE = "median of the optimiser"
CONSTANT = "best constant in hindsight"
FOLKLORE = "1e-3, 10 % warm-up"
FOLKLORE_RATE = -3.0
FOLKLORE_WARMUP = 0.1
STEP_LAW = "Step Law"
KNOWN = "known rates"
LIGHTNING, LR_FINDER = "Lightning's finder", "pytorch-lr-finder"
PRODIGY, SCHEDULE_FREE = "Prodigy", "Schedule-Free AdamW"
PACKAGED = {PRODIGY: "prodigy", SCHEDULE_FREE: "schedule-free"}
"""Optimisers that are said to need no rate, by their keys of `packages.PACKAGES`."""
WAYS = (KNOWN, NAIVE, CONSTANT, FOLKLORE, PRODIGY, SCHEDULE_FREE, STEP_LAW, LIGHTNING, LR_FINDER)
"""The rules in the order in which they are shown."""
TRAINED = (KNOWN, NAIVE, FOLKLORE)
"""The rules whose rates are trained as they are named; other rates are those of sweeps, or so far
off that they are read between them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A case that learned: its ladder, and what is known of it without one."""

    ladder: Ladder
    facts: RateFacts
    parameters: int
    """The number of parameters beside embeddings and heads."""
    finders: Mapping[str, float | None] = field(default_factory=dict)
    """The rate that each tool reads from a range test, by the tool's name."""

    @property
    def case(self) -> AdviceCase:
        return self.ladder.case

    @property
    def law_facts(self) -> RateFacts:
        """Returns what the law asks, with the batch and the length of the case's trainings."""
        tokens = self.case.tokens
        return replace(self.facts, batch_tokens=tokens, tokens=tokens * self.ladder.updates)

    @property
    def optimizer(self) -> str:
        """Adam for those that bear its rates, Muon apart."""
        return ADAM if self.case.optimizer == "adamw" else self.case.optimizer


def apart(one: Looked, others: Sequence[Looked]) -> list[Looked]:
    """Returns the cases that share neither model nor text nor a scheme of initial weights with
    one.
    """
    return [other for other in others if one.case.apart(other.case)]


def law_without(one: Looked, others: Sequence[Looked]) -> RateLaw:
    """Returns the law of recipes and of the ladders of other cases, those of the study's own
    earlier results left out.
    """
    ours = [
        KnownRate(
            family=other.case.family,
            facts=other.law_facts,
            rate=10**other.ladder.best,
            kind="own ladder",
        )
        for other in apart(one, others)
    ]
    return RateLaw.fitted([*(known for known in known_rates() if known.published), *ours])


def known_rate(one: Looked, others: Sequence[Looked]) -> float:
    """log10 of the law's rate."""
    return math.log10(law_without(one, others)(one.law_facts))


def naive_rate(one: Looked, others: Sequence[Looked]) -> float | None:
    """log10 of the median best rate of its optimiser in other cases; None without one."""
    rates = [other.ladder.best for other in apart(one, others) if other.optimizer == one.optimizer]
    return float(np.median(rates)) if rates else None


def hindsight_rate(one: Looked, others: Sequence[Looked]) -> float:
    """log10 of the rung that costs all cases of its optimiser least in the median, itself among
    them.
    """
    own = [other for other in others if other.optimizer == one.optimizer]
    rungs = {step for other in own for step in other.ladder.outcomes}

    def cost(step: int) -> float:
        rate = math.log10(rate_of(step))
        return float(
            np.median([min(1.0, other.ladder.regret(other.ladder.at(rate))) for other in own])
        )

    return math.log10(rate_of(min(rungs, key=lambda step: (cost(step), step))))


def step_law(parameters: int, tokens: int) -> float:
    """log10 of the peak rate of Li et al. 2025 (arXiv:2503.04715, eq. 1), which was fitted to
    AdamW.

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
        STEP_LAW: step_law(one.parameters, case.tokens * one.ladder.updates)
        if one.optimizer == ADAM
        else None,
        **tools,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRate:
    """A rate that a rule named for a case, and what a training at it ended at."""

    looked: Looked
    rate: float | None
    """log10; None of an optimiser that has none."""
    nats: float

    @property
    def lost_nats(self) -> float:
        """Against the best of the ladder."""
        return max(0.0, self.nats - self.looked.ladder.lowest_nats)

    @property
    def regret(self) -> float:
        """The regret as a share of what the best gained."""
        return self.looked.ladder.regret(self.nats)

    @property
    def stuck(self) -> bool:
        return self.looked.ladder.stuck(self.nats)

    def within(self, factor: float) -> bool:
        """Tells whether the rate is within a factor of the best rate."""
        return self.rate is not None and abs(self.rate - self.looked.ladder.best) <= math.log10(
            factor
        )


OFF = (-3, -2, -1, 1, 2, 3)
"""Rungs from the best: an eighth of its rate to eight times."""


def off_by(looked: Sequence[Looked], rungs: int) -> list[NamedRate]:
    """Returns the trainings so many rungs from the best, of ladders that reach so far."""
    found = []
    for one in looked:
        step = one.ladder.best_step + rungs
        if step in one.ladder.outcomes:
            found.append(NamedRate(looked=one, rate=decades(step), nats=one.ladder.nats(step)))
    return found


Named = Mapping[str, Sequence[NamedRate]]
"""The rates that each rule names, in the order of the cases it names one for."""


def less_than(named: Sequence[NamedRate], other: Sequence[NamedRate]) -> Estimate:
    """Returns by how much a rule's share of the gain that is lost, 1 at most, is below another's,
    over the cases that both name a rate for.
    """
    there = {one.looked.case.name: one for one in other}
    return less_by_family(
        (one.looked.case.family, min(1.0, one.regret) - min(1.0, beside.regret))
        for one in named
        if (beside := there.get(one.looked.case.name))
    )


def less_by_family(lost: Iterable[tuple[str, float]]) -> Estimate:
    """Returns the mean of what is lost, by family, with its interval by leaving out one family at a
    time.
    """
    families: defaultdict[str, list[float]] = defaultdict(list)
    for family, one in lost:
        families[family].append(one)
    if len(families) < 2:
        every = [value for own in families.values() for value in own]
        whole, unknown, endless = (
            np.array(one) for one in (np.mean(every) if every else math.nan, math.nan, math.inf)
        )
        return Estimate(count=len(families), mean=whole, deviation=unknown, half_width=endless)
    return jackknife(
        list(families.values()),
        lambda some: float(np.mean([value for own in some for value in own])),
    )


LOOKS = (25, 50, 100, 200, 400, 700)
"""Updates after which trainings at several rates are compared."""
_AROUND = (-1, 0, 1)
"""Rungs about the naive rate: half of it, it and twice it."""
_LAST_SHARE = 0.2
"""The share of the updates so far over whose losses a training's loss is a mean."""


def compared_at(one: Looked, updates: int, steps: Sequence[int] | None = None) -> NamedRate:
    """Returns the rung whose training has the lowest loss after so many updates, which then goes on
    to the end.

    steps: the rungs that are tried; None for all of the ladder.
    """
    tried = [step for step in steps or one.ladder.outcomes if step in one.ladder.outcomes]
    so_far = {step: _loss_after(one.ladder.outcomes[step]["train_nats"], updates) for step in tried}
    chosen = min(so_far, key=lambda step: (so_far[step], step))
    return NamedRate(looked=one, rate=math.log10(rate_of(chosen)), nats=one.ladder.nats(chosen))


def about_naive(one: Looked, others: Sequence[Looked]) -> Sequence[int] | None:
    """Returns three rungs about its naive rate, those of the ladder; None where there is no naive
    rate.
    """
    rate = naive_rate(one, others)
    if rate is None:
        return None
    steps = sorted(one.ladder.outcomes)
    near = min(steps, key=lambda step: abs(decades(step) - rate))
    return [near + place for place in _AROUND if near + place in steps]


def _loss_after(losses: Sequence[float | None], updates: int) -> float:
    last = losses[max(0, updates - max(4, round(_LAST_SHARE * updates))) : updates]
    kept = [loss for loss in last if loss is not None]
    return float(np.mean(kept)) if len(losses) >= updates and len(kept) == len(last) else math.inf


def quantile_of(
    named: Sequence[NamedRate], of: Callable[[NamedRate], float], share: float
) -> float:
    """One that is among them, so that trainings that ended nowhere have their place."""
    return (
        float(np.quantile([of(one) for one in named], share, method="higher"))
        if named
        else math.nan
    )
