"""The peak rate that trainings of ours and recipes of others suggest: one law over all of them.

Its logarithm is a sum: of the width's, of the number of sub-layers', of that number's again where
residual sums are normed (as in Post-LN), and a constant of the optimiser. Nothing is measured.
"""

import math
import re
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from ..placement import registered
from ..placement.base import ModelKind
from ..placement.printing import lines
from ..report.words import counted, learning_rate
from .case import NEAR, ModelToTrain, counts_for
from .evidence import stored

WITHIN = 3.0
"""A rate is named with a range of this factor to either side, which holds most rates that the law
was not fitted to.
"""
ADAM = "adam"
_SUBLAYERS = {"decoder-only": 2, "encoder-only": 2, "encoder-decoder": 5}
"""Of one block; an encoder-decoder has as many blocks in each stack."""
_REFERENCE = (768, 24)
"""Width and sub-layers at which the law's constant is the rate."""
SHALLOW = 4
"""Sub-layers up to which normed sums make no difference."""
STEPS = {
    "muon": ('Rates of Muon are those of torch.optim.Muon with adjust_lr_fn="match_rms_adamw".',)
}
"""Which step a rate is of, where an optimiser is known with several."""
_RIDGE = 0.01
"""Keeps the constant of an optimiser with few rates near Adam's, and decides where facts say the
same.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RateRecipe:
    """What others have trained a model with, read in a file of theirs."""

    name: str
    repository: str
    path: str
    commit: str
    model: ModelKind
    placement: str
    blocks: int
    width: int
    optimizer: str
    peak_lr: float
    warmup_updates: int | None = None
    """None where the file does not say, or counts tokens."""
    updates: int | None = None
    family: str = ""
    """Recipes of one count as one where the law is judged: by default those of one repository."""
    of_images: bool = False

    @property
    def citation(self) -> str:
        return f"{self.name}, {self.repository}, {self.path}"

    @property
    def facts(self) -> "RateFacts":
        return RateFacts.of_case(self, self.placement)


@cache
def recipes() -> Sequence[_RateRecipe]:
    """Every recipe that we read, in the order of the file."""
    text = Path(__file__).with_name("recipes.toml").read_text(encoding="utf-8")
    return [_RateRecipe(**one) for one in tomllib.loads(text)["recipe"]]


@dataclass(frozen=True, slots=True)
class RateFacts:
    """What the law asks of a model."""

    optimizer: str
    width: int
    """Of the widest stream."""
    sublayers: int
    """Of all stacks."""
    normed_sums: float
    """The share of them whose residual sum is normed."""

    @classmethod
    def of_case(cls, case: ModelToTrain | _RateRecipe, placement: str) -> "RateFacts":
        """Of a model that is to be trained with that placement."""
        return cls(
            optimizer=case.optimizer,
            width=case.width,
            sublayers=_SUBLAYERS[case.model] * case.blocks,
            normed_sums=normed_share(placement),
        )


@cache
def normed_share(placement: str) -> float:
    """The share of a placement's residual sums that are normed, as its formula is written."""
    sums = [line for line in lines(registered()[placement]) if re.match(r"(.*: )?x ← .*\+", line)]
    return sum(re.match(r"(.*: )?x ← norm\w*\(.*\+", line) is not None for line in sums) / max(
        1, len(sums)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRate:
    """One that the law is fitted to."""

    family: str
    facts: RateFacts
    rate: float
    published: bool


@cache
def known_rates() -> Sequence[KnownRate]:
    """The recipes' peak rates, and the best ones of our trainings of small models."""
    found = [
        KnownRate(
            family=one.family or one.repository, facts=one.facts, rate=one.peak_lr, published=True
        )
        for one in recipes()
    ]
    for ladder in stored().rates:
        if not ladder.warmup_updates and not ladder.at_an_end:
            of = stored().settings[ladder.setting]
            model = ModelToTrain(
                model=of.model, blocks=of.blocks[0], width=of.width[0], optimizer=ladder.optimizer
            )
            facts = RateFacts.of_case(model, ladder.placement)
            found.append(
                KnownRate(family=ladder.setting, facts=facts, rate=ladder.peak_lr, published=False)
            )
    for one in stored().trained:
        facts = RateFacts(one.optimizer, one.width, one.sublayers, one.normed_sums)
        found.append(KnownRate(family=one.family, facts=facts, rate=one.best_rate, published=False))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLaw:
    """Decades (log10) of the rate."""

    constant: float
    """Of Adam and AdamW at the reference."""
    width: float
    """Per decade of width."""
    sublayers: float
    """Per decade of sub-layers."""
    normed_depth: float
    """Per decade of sub-layers beyond four, times the share of them whose sum is normed."""
    optimizers: dict[str, float]
    """What every other optimiser adds."""

    @classmethod
    def fitted(cls, known: Sequence[KnownRate]) -> "RateLaw":
        """By least squares."""
        others = sorted(
            {one.facts.optimizer for one in known if not counts_for(ADAM, one.facts.optimizer)}
        )
        rows = []
        for one in known:
            is_other = [one.facts.optimizer == name for name in others]
            rows.append([*_values(one.facts), *is_other])
        design = np.array(rows)
        ridge = _RIDGE * np.eye(design.shape[1])
        ridge[0, 0] = 0
        found = np.linalg.solve(
            design.T @ design + ridge, design.T @ np.log10([one.rate for one in known])
        )
        constant, width, sublayers, normed_depth, *own = map(float, found)
        return cls(
            constant=constant,
            width=width,
            sublayers=sublayers,
            normed_depth=normed_depth,
            optimizers=dict(zip(others, own, strict=True)),
        )

    def __call__(self, facts: RateFacts) -> float:
        weights = (self.constant, self.width, self.sublayers, self.normed_depth)
        decades = math.fsum(
            weight * value for weight, value in zip(weights, _values(facts), strict=True)
        )
        return float(10 ** (decades + self.optimizers.get(facts.optimizer, 0.0)))


def _values(facts: RateFacts) -> tuple[float, float, float, float]:
    width, sublayers = _REFERENCE
    # Our shallow models bear the same rates with normed sums as without, deep published ones do
    # not.
    beyond = max(0.0, math.log10(max(1, facts.sublayers) / SHALLOW))
    return (
        1.0,
        math.log10(facts.width / width),
        math.log10(max(1, facts.sublayers) / sublayers),
        facts.normed_sums * beyond,
    )


@cache
def law() -> RateLaw:
    """Fitted to all that is known."""
    return RateLaw.fitted(known_rates())


@dataclass(frozen=True, slots=True)
class BestOfSmaller:
    """The peak rate that was best for a smaller version of a model."""

    rate: float
    facts: RateFacts

    def carried_to(self, larger: RateFacts) -> float:
        """The rate, moved as the law moves from the one to the other; what it says of either is not
        used.
        """
        return self.rate * law()(larger) / law()(self.facts)


CARRIED_HELD = (22, 23)
"""How many best rates of models four times as large lie within `WITHIN` of one that was carried, of
how many: a test counts them in results/rate_transfer."""
HELD = (45, 52)
"""How many published rates lie within the range of a law that was fitted without their family, of
how many: a test counts them."""
HELD_BEYOND_GPT3 = (23, 30)
"""Of these, those that are not of GPT-3's table, which fills one family."""
HELD_BY_MEDIANS = {"all": (17, 52), "near": (44, 50)}
"""The same of a range about the median of the other families' known rates under the optimiser: of
all of them, and of those within a factor of `NEAR` in width, where there are any."""


WRONG_COST = {0.5: 7.2, 2.0: 19.5}
"""By the factor to the best rate: the median that it cost, in % of what the best gains; a test
reads results/advice.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypicalRate:
    """The law's answer for a model."""

    rate: float
    low: float
    high: float
    median_rate: float
    """The naive one beside it: of the known rates near its width, whatever their depth and
    placement.
    """
    recipes: int
    """Of others, under this optimiser or one that counts for it, within a factor of `NEAR` in width
    ...
    """
    trainings: int
    """... and ladders of trainings of ours."""
    under_optimizer: int
    """Recipes of any width under it."""
    nearest: _RateRecipe | None
    """In width and depth among these, of the same kind of model where one is known."""
    warmups: Sequence[float]
    """Shares of a training's updates, rising: of recipes of any width whose sums are normed, or are
    not, as here; one a family, its median."""

    @property
    def stands_on(self) -> str:
        """What the rate comes from, and how often such a range is right."""
        sweeps = f"{counted(self.trainings, 'learning-rate sweep')} of small models of ours"
        told = []
        if self.recipes:
            told.append(counted(self.recipes, "published recipe"))
        if self.trainings:
            told.append(sweeps)
        held, of = HELD
        held_by_medians, of_medians = HELD_BY_MEDIANS["near"]
        beyond, of_beyond = HELD_BEYOND_GPT3
        beside = "" if self.nearest is None else self._beside(self.nearest)
        few = ""
        if 2 * self.under_optimizer < of:
            few = f" ({self.under_optimizer or 'none'} under this optimiser)"
        return (
            "Fitted to all known rates by width, depth and placement; "
            f"within {NEAR:g} times the width: "
            f"{' and '.join(told)}{beside}. Such a range holds {held} of {of} published rates{few} "
            f"it was not fitted to, {beyond} of {of_beyond} outside GPT-3's table; one about the "
            f"median of those near the width, here {learning_rate(self.median_rate, 2)}, holds "
            f"{held_by_medians} of {of_medians}: which is the better start is undecided."
        )

    def _beside(self, near: _RateRecipe) -> str:
        """Words the nearest recipe as a clause, with the side on which it is out of this range."""
        off = ""
        if near.peak_lr < self.low:
            off = ", below this range"
        elif near.peak_lr > self.high:
            off = ", above this range"
        has = f"{learning_rate(near.peak_lr)} with {near.placement}{off}"
        return f"; the nearest recipe has {has} ({near.citation})"


def usual_warmup(shares: Sequence[float]) -> tuple[str, str]:
    """The middle one of rising shares of the updates, and what they are. Raises IndexError without
    any.

    A share and no number, as it is what recipes of 4,800 and of 4,720,000 updates have in common.
    """
    low, middle, high = (
        f"{100 * one:.2g} %" for one in (shares[0], shares[len(shares) // 2], shares[-1])
    )
    several = f"the median of {counted(len(shares), 'source')} with {low} to {high}"
    if len(shares) == 2:
        several = f"the longer of 2 sources with {low} and {high}"
    return f"{middle} of the updates", several if shares[0] < shares[
        -1
    ] else "as in published recipes"


def nearest(
    facts: RateFacts, among: Sequence[_RateRecipe], model: ModelKind | None = None
) -> _RateRecipe | None:
    """The recipe nearest in width and depth, of that kind of model before others; of those alike
    the one whose sums are normed alike, then the first. None of none."""

    def away(one: _RateRecipe) -> tuple[bool, float, float]:
        _, *sizes, normed = (a - b for a, b in zip(_values(one.facts), _values(facts), strict=True))
        return model not in (None, one.model), math.hypot(*sizes), abs(normed)

    return min(among, key=away, default=None)


def typical_rate(facts: RateFacts, model: ModelKind | None = None) -> TypicalRate | None:
    """What models like it are trained with; None for an optimiser with which none near its width is
    known.
    """

    def is_near(one: RateFacts) -> bool:
        return (
            counts_for(facts.optimizer, one.optimizer)
            and 1 / NEAR <= facts.width / one.width <= NEAR
        )

    near = [one for one in known_rates() if is_near(one.facts)]
    if not near:
        return None
    rate, published = law()(facts), sum(one.published for one in near)
    own = [one for one in recipes() if counts_for(facts.optimizer, one.optimizer)]
    alike = [one for one in own if round(one.facts.normed_sums) == round(facts.normed_sums)]
    # Eight files of one table are one opinion.
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for one in alike:
        if one.updates and one.warmup_updates is not None:
            shares[one.family or one.repository].append(one.warmup_updates / one.updates)
    return TypicalRate(
        rate=rate,
        low=rate / WITHIN,
        high=rate * WITHIN,
        median_rate=statistics.median(one.rate for one in near),
        recipes=published,
        trainings=len(near) - published,
        under_optimizer=len(own),
        nearest=nearest(facts, own, model),
        warmups=sorted(map(statistics.median, shares.values())),
    )
