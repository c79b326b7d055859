"""One law over all known peak rates: width, sub-layers, normed sums, optimiser and tokens a batch.

The logarithm of a rate is a sum: of the width's, of the number of sub-layers', of that number's
again where residual sums are normed (as in Post-LN), of the batch's, and a constant of the
optimiser. Best rates of ladders (published ones and ours) say what the constants are; recipes of
others, which say what people are used to, have a constant of their own and no part of the batch.
Nothing is measured.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from ..placement import registered
from ..placement.printing import lines
from .case import ModelToTrain, counts_for
from .evidence import stored
from .recipes import RateRecipe, recipes

ADAM = "adam"
_SUBLAYERS = {"decoder-only": 2, "encoder-only": 2, "encoder-decoder": 5}
"""The sub-layers of one block; an encoder-decoder has as many blocks in each stack."""
_REFERENCE = (768, 24)
"""Width and sub-layers at which the law's constant is the rate of a very large batch."""
SHALLOW = 4
"""Sub-layers up to which normed sums make no difference."""
TOKENS_A_PARAMETER = 20.0
"""The tokens per parameter of a training whose length is not known (Hoffmann et al. 2022,
arXiv:2203.15556, about 20).
"""
_PARAMETERS_A_SUBLAYER = 6
"""Times the width squared: a block of two has 12 (4 of attention, 8 of a feed-forward)."""
_RIDGE = 0.01
"""Keeps the constant of an optimiser with few rates near Adam's, and decides where facts say the
same.
"""
_PUBLISHED_LADDER_WEIGHT = 0.2
"""The weight of a published sweep, where a recipe or a sweep of ours has 1: many published sweeps
are of few models.
"""
RateKind = Literal["recipe", "own ladder", "published ladder"]


@dataclass(frozen=True, slots=True)
class RateFacts:
    """The properties of a model and its training on which the law's rate depends."""

    optimizer: str
    width: int
    """The width of the widest stream."""
    sublayers: int
    """The number of sub-layers of all stacks."""
    normed_sums: float
    """The share of them whose residual sum is normed."""
    batch_tokens: float | None = None
    """The tokens of one update; None where not known."""
    tokens: float | None = None
    """The tokens of the whole training; None for as many as models of that size are trained
    with.
    """

    @classmethod
    def of_case(cls, case: ModelToTrain, placement: str) -> "RateFacts":
        """Returns the facts of a model that is to be trained with that placement."""
        return cls(
            optimizer=case.optimizer,
            width=case.width,
            sublayers=_SUBLAYERS[case.model] * case.blocks,
            normed_sums=normed_share(placement),
            batch_tokens=case.batch_tokens,
            tokens=case.tokens,
        )

    @classmethod
    def of_recipe(cls, recipe: RateRecipe) -> "RateFacts":
        """Returns the facts of a model that others have trained."""
        known = recipe.batch_tokens is not None and recipe.updates is not None
        return cls(
            optimizer=recipe.optimizer,
            width=recipe.width,
            sublayers=_SUBLAYERS[recipe.model] * recipe.blocks,
            normed_sums=normed_share(recipe.placement),
            batch_tokens=recipe.batch_tokens,
            tokens=recipe.batch_tokens * recipe.updates if known else None,  # type: ignore[operator]
        )

    @property
    def training_tokens(self) -> float:
        """The tokens of the whole training, those of `TOKENS_A_PARAMETER` where none are known."""
        parameters = _PARAMETERS_A_SUBLAYER * self.width**2 * max(1, self.sublayers)
        return TOKENS_A_PARAMETER * parameters if self.tokens is None else self.tokens

    @property
    def usual_batches(self) -> tuple[float, float, float]:
        """Three batches, powers of two, such as models of that size are trained with: about an
        eighth, half and twice the critical one.
        """
        low, middle, high = (
            2.0 ** math.floor(math.log2(share * CRITICAL.tokens_of(self)))
            for share in (0.125, 0.5, 2.0)
        )
        return low, middle, high


_LONG = 2e10
"""Tokens of the training that `CriticalBatch.tokens` is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalBatch:
    """Tokens a batch from which on a larger one hardly raises the best rate: a power of the
    training's length (McCandlish et al. 2018, arXiv:1812.06162, section 2.2).
    """

    tokens: float
    """The critical batch, in tokens, in a training of 2e10 tokens."""
    power: float

    def tokens_of(self, facts: RateFacts) -> float:
        """Returns that of a model's training."""
        return float(self.tokens * (facts.training_tokens / _LONG) ** self.power)

    def decades(self, facts: RateFacts) -> float:
        """Returns what a batch takes from the rate of a very large one, log10, 0 or less.

        Far below the critical batch a rate goes with the root of the batch, as adaptive optimisers
        have it (Malladi et al. 2022, arXiv:2205.10287, square root scaling rule), and far above it
        the batch makes no difference: −½ log10(1 + critical / batch).
        """
        if facts.batch_tokens is None:
            raise ValueError("the law is asked of a batch, and these facts have none")
        return -0.5 * math.log10(1 + self.tokens_of(facts) / facts.batch_tokens)


CRITICAL = CriticalBatch(tokens=5e5, power=0.4)
"""Fitted on published ladders: of a grid, what lost least on shapes of model that were left out; a
test reads results/rate_law.
"""


@cache
def normed_share(placement: str) -> float:
    """Returns the share of a placement's residual sums that are normed, as its formula is
    written.
    """
    sums = [line for line in lines(registered()[placement]) if re.match(r"(.*: )?x ← .*\+", line)]
    normed = [line for line in sums if re.match(r"(.*: )?x ← norm\w*\(.*\+", line)]
    return len(normed) / max(1, len(sums))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRate:
    """One that the law is fitted to."""

    family: str
    facts: RateFacts
    """The facts of a learning-rate sweep with its batch."""
    rate: float
    kind: RateKind

    @property
    def published(self) -> bool:
        """True where others have trained a model with the rate: a habit, and no optimum."""
        return self.kind == "recipe"


@cache
def known_rates() -> Sequence[KnownRate]:
    """Returns the recipes' peak rates, the best ones of our trainings of small models, and the best
    ones of published ladders.
    """
    return [*_of_recipes(), *_of_our_ladders(), *_of_published_ladders()]


def _of_recipes() -> list[KnownRate]:
    return [
        KnownRate(
            family=one.family or one.repository,
            facts=RateFacts.of_recipe(one),
            rate=one.peak_lr,
            kind="recipe",
        )
        for one in recipes()
    ]


def _of_our_ladders() -> list[KnownRate]:
    found = []
    for ladder in stored().rates:
        if ladder.warmup_updates or ladder.at_an_end:
            continue
        of = stored().settings[ladder.setting]
        model = ModelToTrain(
            model=of.model,
            blocks=of.blocks[0],
            width=of.width[0],
            optimizer=ladder.optimizer,
            tokens=of.tokens,
            batch_tokens=of.tokens / of.updates,
        )
        facts = RateFacts.of_case(model, ladder.placement)
        found.append(
            KnownRate(family=ladder.setting, facts=facts, rate=ladder.peak_lr, kind="own ladder")
        )
    for one in stored().trained:
        facts = RateFacts(
            one.optimizer,
            one.width,
            one.sublayers,
            one.normed_sums,
            batch_tokens=one.batch_tokens,
            tokens=one.batch_tokens * one.updates,
        )
        found.append(
            KnownRate(family=one.family, facts=facts, rate=one.best_rate, kind="own ladder")
        )
    return found


def _of_published_ladders() -> list[KnownRate]:
    return [
        KnownRate(
            family=one.family,
            facts=RateFacts(
                "adamw",
                one.width,
                2 * one.blocks,
                0.0,
                batch_tokens=one.batch_tokens,
                tokens=one.tokens,
            ),
            rate=one.best_rate,
            kind="published ladder",
        )
        for one in stored().published_ladders
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLaw:
    """Decades (log10) of the rate."""

    constant: float
    """The rate of Adam and AdamW at the reference, with a batch far beyond the critical one."""
    width: float
    """Per decade of width."""
    sublayers: float
    """Per decade of sub-layers."""
    normed_depth: float
    """Per decade of sub-layers beyond four, times the share of them whose sum is normed."""
    habit: float
    """The distance of a published recipe's rate from the best rate with a very large batch.
    People's rates do not move with their batches: with the batch's part the law holds fewer of
    them.
    """
    optimizers: dict[str, float]
    """The distance that every other optimiser adds."""
    critical: CriticalBatch = CRITICAL

    @classmethod
    def fitted(cls, known: Sequence[KnownRate], critical: CriticalBatch = CRITICAL) -> "RateLaw":
        """Fits the law by weighted least squares; the critical batch is given."""
        others = sorted(
            {one.facts.optimizer for one in known if not counts_for(ADAM, one.facts.optimizer)}
        )
        rows = []
        for one in known:
            is_other = [one.facts.optimizer == name for name in others]
            rows.append([*_values(one.facts), one.published, *is_other])
        design = np.array(rows, dtype=float)
        decades = np.array(
            [
                math.log10(one.rate) - (0.0 if one.published else critical.decades(one.facts))
                for one in known
            ]
        )
        weights = np.array([_weight(one) for one in known])
        ridge = _RIDGE * np.eye(design.shape[1])
        ridge[0, 0] = 0
        weighted = design * weights[:, None]
        found = np.linalg.solve(design.T @ weighted + ridge, weighted.T @ decades)
        constant, width, sublayers, normed_depth, habit, *own = map(float, found)
        return cls(
            constant=constant,
            width=width,
            sublayers=sublayers,
            normed_depth=normed_depth,
            habit=habit,
            optimizers=dict(zip(others, own, strict=True)),
            critical=critical,
        )

    def __call__(self, facts: RateFacts, *, recipe: bool = False) -> float:
        """Returns the best rate; recipe: what people train such a model with.

        Without a batch it is that of the middle one of three that are usual.
        """
        weights = (self.constant, self.width, self.sublayers, self.normed_depth)
        decades = math.fsum(
            weight * value for weight, value in zip(weights, _values(facts), strict=True)
        )
        decades += self.optimizers.get(facts.optimizer, 0.0)
        if recipe:
            return float(10 ** (decades + self.habit))
        if facts.batch_tokens is None:
            _, middle, _ = facts.usual_batches
            facts = replace(facts, batch_tokens=middle)
        return float(10 ** (decades + self.critical.decades(facts)))


def _weight(one: KnownRate) -> float:
    return _PUBLISHED_LADDER_WEIGHT if one.kind == "published ladder" else 1.0


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


def distances(one: RateFacts, other: RateFacts) -> tuple[float, float]:
    """Returns the distances of two models: in decades of width and sub-layers together, and in
    normed depth.
    """
    _, *sizes, normed = (a - b for a, b in zip(_values(one), _values(other), strict=True))
    return math.hypot(*sizes), abs(normed)


@cache
def law() -> RateLaw:
    """Fitted to all that is known."""
    return RateLaw.fitted(known_rates())
