"""The peak rate that ladders of ours and of others, and recipes, suggest for a model, with its
range, and what is known of its warm-up.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..placement.base import ModelKind
from ..report.words import counted, joined, learning_rate
from .case import NEAR, counts_for
from .law import RateFacts, distances, known_rates, law, normed_share
from .recipes import RateRecipe, recipes

WITHIN = 3.0
"""A rate is named with a range of this factor to either side, which holds most rates that the law
was not fitted to.
"""
STEPS = {
    "muon": ('Rates of Muon are those of torch.optim.Muon with adjust_lr_fn="match_rms_adamw".',)
}
"""The step that a rate is of, where an optimiser is known with several."""


@dataclass(frozen=True, slots=True)
class BestOfSmaller:
    """The peak rate that was best for a smaller version of a model."""

    rate: float
    facts: RateFacts

    def carried_to(self, larger: RateFacts) -> float:
        """Returns the rate, moved as the law moves from the one to the other with batch and length
        as they are; what it says of either is not used.
        """
        _, middle, _ = larger.usual_batches
        same = replace(
            larger, batch_tokens=larger.batch_tokens or middle, tokens=larger.tokens or 1e9
        )
        small = replace(self.facts, batch_tokens=same.batch_tokens, tokens=same.tokens)
        return self.rate * law()(same) / law()(small)


CARRIED_HELD = (22, 23)
"""The number of best rates of models four times as large that lie within `WITHIN` of a carried
rate, of how many: a test counts them in results/rate_transfer.
"""
HELD = (44, 52)
"""The number of recipes' rates that lie within the range of a law fitted without their family, of
how many: a test counts them.
"""
HELD_BEYOND_GPT3 = (22, 30)
"""The same without GPT-3's table, which fills one family."""
HELD_BY_MEDIANS = {"all": (17, 52), "near": (44, 50)}
"""The same of a range about the median of other families' recipes and sweeps under the optimiser:
of all of them, and of those within a factor of `NEAR` in width, where there are any."""
HELD_LADDERS = (110, 110)
"""The number of best rates of published sweeps that lie within the range of a law fitted without
that shape of model, of how many: a test counts them.
"""


WRONG_NATS = {0.5: 0.008, 2.0: 0.013}
"""The median loss, in nats, of a rate by its factor to the best rate of a published sweep; a test
reads results/rate_law.
"""
WRONG_COST = {0.5: 7.2, 2.0: 19.5}
"""The median cost of a rate by its factor to the best rate, in % of what the best gains; a test
reads results/advice.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRate:
    """The best rate with batches of one size."""

    batch_tokens: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TypicalRate:
    """The law's answer for a model."""

    rate: float
    """The best one; where no batch is told, with the middle one of `by_batch`."""
    low: float
    high: float
    """Ends of the range; where no batch is told, from the smallest batch's to the largest's."""
    by_batch: Sequence[BatchRate]
    """The rate of the batch that was given; else of three that are usual, rising."""
    recipe_rate: float
    """The rate with which people train such a model, by the same law: a habit, and no optimum."""
    median_rate: float
    """The naive one beside it: of recipes and our sweeps near its width, whatever their depth,
    placement and batch.
    """
    recipes: int
    """The number of recipes of others, under this optimiser or one that counts for it, within a
    factor of `NEAR` in width ...
    """
    trainings: int
    """... and ladders of trainings of ours ..."""
    published_ladders: int
    """... and of others."""
    under_optimizer: int
    """Recipes of any width under it."""
    nearest: RateRecipe | None
    """The nearest of these in width and depth, of the same kind of model where one is known."""
    warmups: Sequence[float]
    """Shares of a training's updates, rising: of recipes of any width whose sums are normed, or are
    not, as here; one a family, its median."""

    @property
    def batch_told(self) -> bool:
        """True where the rate is for a batch that was given."""
        return len(self.by_batch) == 1

    @property
    def words(self) -> str:
        """The rate with its batch; without one, the rates of three."""
        if self.batch_told:
            return learning_rate(self.rate, 2)
        told = [
            f"{learning_rate(one.rate, 2)} with {batch_words(one.batch_tokens)}"
            for one in self.by_batch
        ]
        return f"{', '.join(told)} tokens a batch"

    @property
    def stands_on(self) -> str:
        """The sources of the rate, and how often such a range is right."""
        told = []
        if self.recipes:
            told.append(counted(self.recipes, "published recipe"))
        if self.published_ladders:
            told.append(counted(self.published_ladders, "published sweep"))
        if self.trainings:
            sweeps = counted(self.trainings, "learning-rate sweep")
            told.append(f"{sweeps} of small models of ours")
        held, of = HELD
        held_by_medians, of_medians = HELD_BY_MEDIANS["near"]
        in_ladders, of_ladders = HELD_LADDERS
        beside = "" if self.nearest is None else self._beside(self.nearest)
        few = ""
        if 2 * self.under_optimizer < of:
            few = f" ({self.under_optimizer or 'none'} under this optimiser)"
        return (
            "Fitted to all known rates by width, depth, placement and batch; "
            f"within {NEAR:g} times the width: {joined(told)}{beside}. Such a range holds "
            f"{in_ladders} of {of_ladders} best rates of published sweeps of other shapes. Recipes "
            f"are lower, about {learning_rate(self.recipe_rate, 2)}, whose range holds "
            f"{held} of {of}{few}; that of the median near the width, here "
            f"{learning_rate(self.median_rate, 2)}, holds {held_by_medians} of {of_medians}."
        )

    def _beside(self, near: RateRecipe) -> str:
        """Words the nearest recipe as a clause, with the side on which it is out of this range."""
        off = ""
        if near.peak_lr < self.low:
            off = ", below this range"
        elif near.peak_lr > self.high:
            off = ", above this range"
        has = f"{learning_rate(near.peak_lr)} with {near.placement}{off}"
        return f"; the nearest recipe has {has} ({near.citation})"


def batch_words(batch_tokens: float) -> str:
    """Returns a number of tokens as people say it, such as "32k" or "1M"."""
    if batch_tokens >= 1e6:
        return f"{batch_tokens / 2**20:.2g}M"
    if batch_tokens >= 1e4:
        return f"{batch_tokens / 2**10:.0f}k"
    return f"{batch_tokens:,.0f}"


def usual_warmup(shares: Sequence[float]) -> tuple[str, str]:
    """Returns the middle one of rising shares of the updates, and what they are. Raises IndexError
    without any.

    A share and no number, as it is what recipes of 4,800 and of 4,720,000 updates have in common.
    """
    low, middle, high = (
        f"{100 * one:.2g} %" for one in (shares[0], shares[len(shares) // 2], shares[-1])
    )
    several = f"the median of {counted(len(shares), 'source')} with {low} to {high}"
    if len(shares) == 2:
        several = f"the longer of 2 sources with {low} and {high}"
    if shares[0] == shares[-1]:
        several = "as in published recipes"
    return f"{middle} of the updates", several


def nearest(
    facts: RateFacts, among: Sequence[RateRecipe], model: ModelKind | None = None
) -> RateRecipe | None:
    """Returns the recipe nearest in width and depth, of that kind of model before others; of those
    alike the one whose sums are normed alike, then the first. None of none.
    """

    def away(one: RateRecipe) -> tuple[bool, float, float]:
        sizes, normed = distances(RateFacts.of_recipe(one), facts)
        return model not in (None, one.model), sizes, normed

    return min(among, key=away, default=None)


def typical_rate(facts: RateFacts, model: ModelKind | None = None) -> TypicalRate | None:
    """Returns the best rate of models like it, and what they are trained with; None for an
    optimiser with which none near its width is known.
    """

    def is_near(one: RateFacts) -> bool:
        return (
            counts_for(facts.optimizer, one.optimizer)
            and 1 / NEAR <= facts.width / one.width <= NEAR
        )

    near = [one for one in known_rates() if is_near(one.facts)]
    if not near:
        return None
    batches = facts.usual_batches if facts.batch_tokens is None else (facts.batch_tokens,)
    by_batch = [
        BatchRate(batch_tokens=batch, rate=law()(replace(facts, batch_tokens=batch)))
        for batch in batches
    ]
    own = [one for one in recipes() if counts_for(facts.optimizer, one.optimizer)]
    kinds = Counter(one.kind for one in near)
    return TypicalRate(
        rate=law()(facts),
        low=by_batch[0].rate / WITHIN,
        high=by_batch[-1].rate * WITHIN,
        by_batch=by_batch,
        recipe_rate=law()(facts, recipe=True),
        median_rate=statistics.median(one.rate for one in near if one.kind != "published ladder"),
        recipes=kinds["recipe"],
        trainings=kinds["own ladder"],
        published_ladders=kinds["published ladder"],
        under_optimizer=len(own),
        nearest=nearest(facts, own, model),
        warmups=_warmup_shares(facts, own),
    )


def _warmup_shares(facts: RateFacts, own: Sequence[RateRecipe]) -> list[float]:
    """Returns the shares of a training over which recipes warm up, one a family."""
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for one in own:
        alike = round(normed_share(one.placement)) == round(facts.normed_sums)
        # Eight files of one table are one opinion.
        if alike and one.updates and one.warmup_updates is not None:
            shares[one.family or one.repository].append(one.warmup_updates / one.updates)
    return sorted(map(statistics.median, shares.values()))
