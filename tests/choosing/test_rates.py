"""The rate that is named without a measurement: what its law is fitted to, and how far off it is on
what it is not.
"""

import math
import re
import statistics
from collections import defaultdict
from functools import cache

import pytest

from choosing.recomputed import at, result
from normscope.choosing.case import NEAR, counts_for
from normscope.choosing.evidence import stored
from normscope.choosing.law import (
    CRITICAL,
    KnownRate,
    RateFacts,
    RateLaw,
    known_rates,
    law,
    normed_share,
)
from normscope.choosing.rates import (
    CARRIED_HELD,
    HELD,
    HELD_BEYOND_GPT3,
    HELD_BY_MEDIANS,
    HELD_LADDERS,
    WITHIN,
    WRONG_COST,
    WRONG_NATS,
    BestOfSmaller,
    typical_rate,
    usual_warmup,
)
from normscope.choosing.recipes import recipes
from normscope.measure import Estimate
from normscope.placement import registered
from normscope.report.words import learning_rate
from normscope_studies.engine.estimates import jackknife

KNOWN = known_rates()
PUBLISHED = [one for one in KNOWN if one.published]
LADDERS = [one for one in KNOWN if one.kind == "published ladder"]


def facts(
    optimizer: str = "adamw",
    width: int = 768,
    sublayers: int = 24,
    normed_sums: float = 0.0,
    batch_tokens: float | None = 491_520,
    tokens: float | None = None,
) -> RateFacts:
    return RateFacts(optimizer, width, sublayers, normed_sums, batch_tokens, tokens)


@cache
def law_without(family: str) -> RateLaw:
    return RateLaw.fitted([one for one in KNOWN if one.family != family])


def off(one: KnownRate) -> float:
    """The factor between the rate and that of a law that was fitted without its family."""
    foreseen = law_without(one.family)(one.facts, recipe=one.published)
    return max(one.rate / foreseen, foreseen / one.rate)


def test_the_range_holds_most_published_rates_of_families_that_the_law_has_not_seen() -> None:
    """GPT-3's table counts as one family, and a repository as one."""
    factors = sorted(map(off, PUBLISHED))
    held = sum(factor <= WITHIN for factor in factors)
    assert (held, len(factors)) == HELD
    beyond = [off(one) for one in PUBLISHED if one.family != "gpt-3"]
    assert (sum(factor <= WITHIN for factor in beyond), len(beyond)) == HELD_BEYOND_GPT3
    assert held / len(factors) >= 0.8
    assert statistics.median(factors) < 1.85
    assert sum(factor > 4 for factor in factors) == 5


def test_the_range_holds_best_rates_of_published_ladders_of_shapes_not_fitted_to() -> None:
    """The law is off by a factor of 1.3 in the median, and by 2.7 at most."""
    factors = sorted(map(off, LADDERS))
    assert (sum(factor <= WITHIN for factor in factors), len(factors)) == HELD_LADDERS
    assert statistics.median(factors) < 1.35
    assert factors[-1] < 2.8


def test_ladders_and_critical_batch_are_those_of_the_result() -> None:
    found = result("rate_law")
    assert [one["best_rate"] for one in found["ladders"]] == [one.rate for one in LADDERS]
    least = min(found["critical"], key=lambda one: one["mean_nats"])
    assert (least["tokens"], least["power"]) == (CRITICAL.tokens, CRITICAL.power)
    off_by = {float(factor): nats for factor, nats in found["off_median_nats"].items()}
    assert {factor: round(off_by[factor], 3) for factor in WRONG_NATS} == WRONG_NATS


SIZES = re.compile(r"^(?P<model>.+)_(?P<blocks>\d+)x(?P<width>\d+)_(?P<batch>\d+)-\d+_adamw")
NORMED = {"post-ln": 1.0, "deepnorm": 1.0, "torch-post": 1.0}


def facts_of_case(name: str, updates: int = 1000) -> RateFacts:
    """Of a case of results/rate_transfer, whose name has its sizes and its batch."""
    found = SIZES.match(name)
    assert found is not None
    normed = [share for words, share in NORMED.items() if words in found["model"]]
    batch = int(found["batch"])
    return facts(
        width=int(found["width"]),
        sublayers=2 * int(found["blocks"]),
        normed_sums=max(normed, default=0.0),
        batch_tokens=batch,
        tokens=batch * updates,
    )


def test_the_range_of_a_carried_rate_holds_the_best_ones_that_were_measured() -> None:
    held = []
    for one in result("rate_transfer")["growths"]:
        if one["way"] != "moved by the law of known rates":
            continue
        small, large = facts_of_case(one["smaller"]), facts_of_case(one["larger"])
        foretold = math.log10(BestOfSmaller(1.0, small).carried_to(large))
        held.append(abs(one["moved"] - foretold) <= math.log10(WITHIN))
    assert (sum(held), len(held)) == CARRIED_HELD


def test_most_best_rates_of_trainings_of_ours_that_it_never_saw_are_in_its_range() -> None:
    """Seven placements over depth, and four models of others over width."""
    held = []
    for one in result("rate_transfer")["ladders"]:
        if one["learned"] and "mup" not in one["case"] and "narrower" not in one["case"]:
            factor = law()(facts_of_case(one["case"])) / one["best_rate"]
            held.append(1 / WITHIN <= factor <= WITHIN)
    assert (sum(held), len(held)) == (37, 41)


def test_what_a_wrong_rate_costs_is_what_was_measured() -> None:
    off_by = result("advice")["off"]
    assert {
        factor: round(100 * off_by[f"{factor:g}"]["median_regret"], 1) for factor in WRONG_COST
    } == WRONG_COST


def beside_medians(known: list[KnownRate], within: float) -> tuple[tuple[int, int], Estimate]:
    """How many rates lie within the range about the median of other families' near it in width, of
    how many; and by how many decades the law is nearer, negative where it is, with its interval
    over families."""
    held, asked, nearer = 0, 0, defaultdict(list)
    for one in known:
        others = [
            other.rate
            for other in KNOWN
            if other.family != one.family
            and other.kind != "published ladder"
            and counts_for(one.facts.optimizer, other.facts.optimizer)
            and 1 / within <= one.facts.width / other.facts.width <= within
        ]
        if others:
            decades = abs(math.log10(one.rate / statistics.median(others)))
            held, asked = held + (decades <= math.log10(WITHIN) * (1 + 1e-9)), asked + 1
            nearer[one.family].append(math.log10(off(one)) - decades)
    mean = jackknife(
        list(nearer.values()), lambda some: statistics.fmean(x for family in some for x in family)
    )
    return (held, asked), mean


def test_the_law_is_nearer_than_a_median_by_optimiser_and_undecided_beside_medians_nearby() -> None:
    (held_by_all, by_all), (held_by_near, by_near) = (
        beside_medians(PUBLISHED, math.inf),
        beside_medians(PUBLISHED, NEAR),
    )
    assert {"all": held_by_all, "near": held_by_near} == HELD_BY_MEDIANS
    assert by_all.mean + by_all.half_width < 0
    assert abs(by_near.mean) < by_near.half_width
    ours = [one for one in KNOWN if one.kind == "own ladder"]
    (_, by_all), (_, by_near) = beside_medians(ours, math.inf), beside_medians(ours, NEAR)
    assert by_all.mean + by_all.half_width < 0
    assert abs(by_near.mean) < by_near.half_width


def test_the_law_is_the_weighted_least_squares_of_all_that_is_known() -> None:
    """Moving any number of it makes the squares, with the little weight on its numbers, larger."""
    found = law()
    numbers = [
        found.constant,
        found.width,
        found.sublayers,
        found.normed_depth,
        found.habit,
        *found.optimizers.values(),
    ]

    def squares(values: list[float]) -> float:
        total = 0.01 * sum(value**2 for value in values[1:])
        for one in KNOWN:
            fact = one.facts
            own = [float(fact.optimizer == name) for name in found.optimizers]
            beyond = fact.normed_sums * max(0.0, math.log10(fact.sublayers / 4))
            sizes = [1.0, math.log10(fact.width / 768), math.log10(fact.sublayers / 24), beyond]
            row = [*sizes, float(one.published), *own]
            decades = sum(a * b for a, b in zip(values, row, strict=True))
            if not one.published:
                critical = 5e5 * (fact.tokens / 2e10) ** 0.4
                decades -= 0.5 * math.log10(1 + critical / fact.batch_tokens)
            weight = 0.2 if one.kind == "published ladder" else 1.0
            total += weight * (math.log10(one.rate) - decades) ** 2
        return total

    least = squares(numbers)
    for place in range(len(numbers)):
        for step in (-1e-3, 1e-3):
            assert (
                squares([value + step * (place == at) for at, value in enumerate(numbers)]) > least
            )


def test_a_rate_goes_with_the_root_of_a_small_batch_and_not_with_a_large_one() -> None:
    for tokens in (1e8, 1e12):
        small, four_times = (law()(facts(batch_tokens=size, tokens=tokens)) for size in (64, 256))
        assert four_times / small == pytest.approx(2, rel=0.02)
        large, larger = (law()(facts(batch_tokens=size, tokens=tokens)) for size in (1e9, 4e9))
        assert larger / large == pytest.approx(1, rel=0.002)


def test_without_a_batch_three_have_a_rate_each_and_the_range_is_over_all() -> None:
    found = typical_rate(facts(batch_tokens=None))
    assert found is not None
    assert not found.batch_told
    each = [typical_rate(facts(batch_tokens=one.batch_tokens)) for one in found.by_batch]
    assert [one.rate for one in found.by_batch] == [one.rate for one in each if one is not None]
    assert len(each) == 3
    assert found.rate == found.by_batch[1].rate
    assert found.low == found.by_batch[0].rate / WITHIN
    assert found.high == found.by_batch[2].rate * WITHIN
    assert "with 16k" in found.words


def test_models_that_people_train_get_the_best_rate_and_what_they_were_trained_with() -> None:
    """Rates of recipes are mostly below what ladders find best; the range of habits holds these."""
    for said, rate in (
        (facts(), 6e-4),  # GPT-2 small, ViT-B at 1e-3
        (facts(), 1e-3),
        (facts(normed_sums=1.0), 1.15e-4),  # BERT-base, whose 1e-4 lies just below
        (facts(width=2048, sublayers=44), 4e-4),  # TinyLlama
        (facts(sublayers=60), 1e-3),  # T5 base, whose recipes have 1e-4 to 1e-3
        (facts("muon", width=1024), 1e-3),
    ):
        found = typical_rate(said)
        assert found is not None
        assert found.recipe_rate / WITHIN <= rate <= found.recipe_rate * WITHIN
        assert found.recipe_rate < found.rate
        assert found.high / found.low == pytest.approx(WITHIN**2)
        assert found.recipes + found.trainings > 0
        assert f"here {learning_rate(found.median_rate, 2)}, holds" in found.stands_on
        assert ("published recipe" in found.stands_on) == (found.recipes > 0)


def test_an_optimiser_that_was_not_seen_near_that_width_gets_no_rate() -> None:
    widths = [one.facts.width for one in KNOWN if one.facts.optimizer == "sgd"]
    assert typical_rate(facts("sgd", width=math.floor(NEAR * max(widths)))) is not None
    assert typical_rate(facts("sgd", width=math.floor(NEAR * max(widths)) + 1)) is None
    assert typical_rate(facts("no-such-optimiser")) is None


def test_wider_deeper_and_normed_sums_have_lower_rates() -> None:
    here = law()(facts())
    assert law()(facts(width=4096)) < here / 2
    assert law()(facts(sublayers=96)) < here
    assert law()(facts(normed_sums=1.0)) < here
    assert law()(facts(sublayers=4, normed_sums=1.0)) == law()(facts(sublayers=4))
    assert law()(facts("adam")) == here


def test_recipes_are_of_placements_that_there_are_and_of_commits() -> None:
    assert len({one.repository for one in recipes()}) >= 15
    for one in recipes():
        assert one.model in registered()[one.placement].models
        assert re.fullmatch(r"[0-9a-f]{40}", one.commit)
        assert 0 < one.peak_lr < 1
        assert one.warmup_updates is None or one.updates is None or one.warmup_updates < one.updates
    # GPT-3's table 2.1, whoever repeats it.
    table = {768: 6e-4, 1024: 3e-4, 1536: 2.5e-4, 2560: 1.6e-4}
    for one in recipes():
        if one.family == "gpt-3" and one.width in table:
            assert one.peak_lr == table[one.width], one.name


GPT3_TABLE = {
    (12, 768): 0.5,
    (24, 1_024): 0.5,
    (24, 1_536): 0.5,
    (24, 2_048): 1,
    (32, 2_560): 1,
    (32, 4_096): 2,
}
"""Brown et al. 2020, table 2.1: millions of tokens of an update, by blocks and width."""
READ = {
    "GPT-2 medium": 31.5,
    "GPT-2 large": 150,
    "GPT-2 XL": 32,
    "Pythia 70M": 300,
    "Pythia 1B": 300,
    "Pythia 6.9B": 300,
    "Pythia 12B": 300,
    "MPT 125M": 2.5,
    "MPT 350M": 7,
    "MPT 760M": 15.2,
    "MPT 1B": 26,
    "MPT 3B": 54,
    "MPT 7B": 134,
    "OLMo 1B": 3_100,
    "SmolLM 135M": 600,
    "SmolLM 1.7B": 1_000,
    "SmolLM3 3B": 11_200,
    "TinyLlama 1.1B": 3_000,
}
"""Thousand millions of tokens that the authors say that a training read."""


def test_most_recipes_have_the_tokens_of_an_update() -> None:
    known = [one.batch_tokens for one in recipes() if one.batch_tokens is not None]
    assert len(known) >= 45
    assert all(4_000 <= tokens <= 10_000_000 for tokens in known)


def test_recipes_that_follow_gpt3_have_its_batches() -> None:
    """Pythia has its rates, and two million tokens at every size."""
    following = [one for one in recipes() if one.name.startswith(("OPT", "MPT"))]
    assert len(following) == 11
    for one in following:
        assert one.batch_tokens == GPT3_TABLE[one.blocks, one.width] * 2**20, one.citation


@pytest.mark.parametrize("name", READ)
def test_updates_times_their_tokens_are_what_the_authors_say_was_read(name: str) -> None:
    [one] = [one for one in recipes() if one.name == name]
    assert one.updates is not None
    assert one.batch_tokens is not None
    assert one.updates * one.batch_tokens == pytest.approx(READ[name] * 1e9, rel=0.06)


def test_warm_up_is_a_share_whatever_the_width_and_longer_under_normed_sums() -> None:
    """Recipes have 100 to 12,520 updates of 4,800 to 4,720,000: their numbers say nothing of a
    small model.
    """
    small, large = typical_rate(facts(width=64)), typical_rate(facts(width=4096))
    normed = typical_rate(facts(normed_sums=1.0))
    assert small is not None
    assert large is not None
    assert normed is not None
    assert list(small.warmups) == list(large.warmups) == sorted(small.warmups)
    assert ", ".join(usual_warmup(small.warmups)).startswith("1 % of the updates, the median of ")
    assert max(large.warmups) < 0.1
    told = {
        (one.family or one.repository, normed_share(one.placement))
        for one in recipes()
        if one.warmup_updates is not None
        and one.updates is not None
        and one.optimizer in ("adam", "adamw")
    }
    assert len(large.warmups) + len(normed.warmups) == len(told)
    assert statistics.median(normed.warmups) > statistics.median(large.warmups)


def test_the_shares_of_normed_sums_are_those_of_the_formulas() -> None:
    shares = {
        "post-ln": 1.0,
        "deepnorm": 1.0,
        "pre-ln": 0.0,
        "peri-ln": 0.0,
        "hybrid-norm": 0.5,
        "olmo-2": 0.0,
    }
    assert {name: normed_share(name) for name in shares} == shares
    assert all(0 <= normed_share(name) <= 1 for name in registered())


def test_every_ladder_of_ours_stands_where_it_says() -> None:
    assert len(stored().trained) == 60
    for one in stored().trained:
        name, _, pointer = one.source.partition("#")
        case = at(result(name), pointer.removesuffix("/ladders/0/best_rate"))
        ladder = case["ladders"][0]
        assert (ladder["best_rate"], case["family"], ladder["updates"]) == (
            one.best_rate,
            one.family,
            1000,
        )
        assert (case["facts"]["width"], case["facts"]["sublayers"]) == (one.width, one.sublayers)
        # The rung with the lowest loss is next to the rate that a parabola reads.
        best = min(
            ladder["trainings"], key=lambda rung: math.inf if rung["nats"] is None else rung["nats"]
        )
        assert 1 / 2 <= one.best_rate / best["rate"] <= 2
