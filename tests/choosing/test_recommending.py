"""What is recommended: three lines, from what is near, else from recipes that were read, and never
from nothing.
"""

import re
from dataclasses import replace
from statistics import fmean, median

import pytest

from choosing.recomputed import result
from normscope.choosing.case import ModelToTrain
from normscope.choosing.choice import choose, published_near
from normscope.choosing.law import RateFacts, normed_share
from normscope.choosing.parts import parts
from normscope.choosing.rates import HELD, typical_rate, usual_warmup
from normscope.choosing.recipes import recipes
from normscope.choosing.recommending import _Recommendation, plain, recommended
from normscope.report.words import learning_rate
from normscope_studies.manual.choosing import CASES

GPT = ModelToTrain(model="decoder-only", blocks=12, width=768, optimizer="adamw", tokens=1e10)
SMALL = ModelToTrain(model="decoder-only", blocks=4, width=128, optimizer="muon", tokens=2e6)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_answer_begins_with_three_lines(case: ModelToTrain) -> None:
    choice = choose(case)
    first, why, *_ = parts(choice)
    assert [line.partition(":")[0] for line in first.before] == [
        "Placement",
        "Peak rate",
        "Warm-up",
    ]
    assert [line.partition(".")[0] for line in why.before] == [
        "- Placement",
        "- Peak rate",
        "- Warm-up",
    ]
    assert all(" To check: " in line for line in why.before)
    # What is printed trains under the optimiser that was asked for.
    for line in recommended(choice)[1:]:
        assert (f"--optimizers {case.optimizer} " in line.surer) == (case.optimizer != "adam")
    assert [one["what"] for one in plain(choice)["recommended"]] == [
        "Placement",
        "Peak rate",
        "Warm-up",
    ]
    # Whatever is cited is there: a result that counts, or a source that was read.
    known = {one.citation for one in recipes()}
    for line in recommended(choice):
        assert set(re.findall(r"results/(\w+)", line.sure)) <= {
            *(one.setting.result for one in choice.measured),
            "advice",
            "rate_law",
        }
        for cited in re.findall(r"\((?!results/)([^()]*[a-z]/[^()]*)\)", line.sure):
            assert cited in known, cited


def test_the_rate_is_that_of_the_law_with_what_it_stands_on() -> None:
    placement, rate, warmup = recommended(choose(GPT))
    assert (placement.says, placement.sure[:8]) == ("pre-ln", "Not sure")
    (recipe,) = (one for one in recipes() if one.name == "GPT-2 small")
    assert recipe.citation in rate.sure
    facts = RateFacts("adamw", 768, 24, 0.0, batch_tokens=None, tokens=1e10)
    found = typical_rate(facts)
    assert found is not None
    between = f"between {learning_rate(found.low, 2)} and {learning_rate(found.high, 2)}"
    assert rate.says == f"{found.words}, {between} (say yours: `--batch-tokens`)"
    told_batch = typical_rate(replace(facts, batch_tokens=5e5))
    assert told_batch is not None
    _, rate, _ = recommended(choose(replace(GPT, batch_tokens=5e5)))
    assert rate.says.startswith(f"{learning_rate(told_batch.rate, 2)}, between ")
    assert "batch-tokens" not in rate.says
    told: dict[str, list[float]] = {}
    for one in recipes():
        alike = one.optimizer in ("adam", "adamw") and normed_share(one.placement) == 0
        if alike and one.updates and one.warmup_updates is not None:
            told.setdefault(one.family or one.repository, []).append(
                one.warmup_updates / one.updates
            )
    own = sorted(median(shares) for shares in told.values())
    assert warmup.says.startswith(
        f"{100 * own[len(own) // 2]:.2g} % of the updates, the median of {len(own)} sources"
    )
    wider = recommended(choose(replace(GPT, width=5120, blocks=36)))[1]
    assert float(wider.says.partition(" ")[0]) < found.by_batch[0].rate
    # Under Muon another recipe counts, and under SGD there is none near.
    muon, sgd = (recommended(choose(replace(GPT, optimizer=name))) for name in ("muon", "sgd"))
    assert "Moonlight" in muon[1].sure
    assert [line.says for line in sgd[1:]] == ["not known under this optimiser", "not known"]


def first_of(case: ModelToTrain) -> _Recommendation:
    return recommended(choose(case))[0]


def test_what_leads_in_shallow_or_short_trainings_is_not_recommended_for_others() -> None:
    assert first_of(SMALL).says == "peri-ln"
    for other in (
        replace(SMALL, blocks=5),
        replace(SMALL, tokens=None),
        replace(SMALL, tokens=2e7),
    ):
        assert first_of(other).says == "pre-ln", other
    assert "(`--tokens`)" in first_of(replace(SMALL, tokens=None)).surer
    # Post-LN ends below Pre-LN with 4 blocks, and above it with 8 and more.
    adamw = choose(replace(SMALL, optimizer="adamw"))
    (post,) = (one for one in adamw.answers[0].claims if one.placement == "post-ln")
    means = {
        adamw.settings[one.setting].blocks[0]: one.mean
        for one in post.findings
        if "transfer" in one.setting
    }
    assert {blocks: mean > 0 for blocks, mean in means.items()} == {
        2: False,
        4: False,
        8: True,
        16: True,
        32: True,
    }
    assert (post.group, post.disagree) == ("undecided", True)
    assert "of pre-ln and post-ln" not in first_of(replace(GPT, blocks=32)).surer


def test_published_numbers_are_told_of_such_a_size_and_optimiser_alone() -> None:
    case = ModelToTrain(model="encoder-decoder", blocks=6, width=512, optimizer="adam")
    assert published_near(choose(case))[0].claim.startswith(
        "WMT14 En-De BLEU at 6, 12 and 18 blocks"
    )
    assert published_near(choose(replace(case, blocks=40))) == []
    assert published_near(choose(replace(case, width=32))) == []
    assert {one.optimizer for one in published_near(choose(replace(case, optimizer="radam")))} == {
        "",
        "radam",
    }


def test_near_what_was_measured_ours_counts() -> None:
    choice = choose(SMALL)
    placement, _, warmup = recommended(choice)
    (lower,) = (one for one in choice.answers if one.question.name == "lower-loss")
    assert placement.says == lower.of("supported")[0].placement
    assert placement.sure.startswith("Measured near this size")
    assert (
        warmup.says in ("none needed", "yes, as long as in that result") or "recipe" in warmup.says
    )


@pytest.mark.parametrize(
    ("case", "recipe", "off"),
    [
        (replace(GPT, blocks=24), "GPT-2 medium", ""),
        (replace(GPT, blocks=48), "SmolLM 360M", ""),
        (
            replace(GPT, blocks=20, width=1024, model="encoder-decoder"),
            "T5 1.1 large",
            ", below this range",
        ),
        (
            ModelToTrain(model="encoder-decoder", blocks=6, width=512, optimizer="adam"),
            "Transformer, IWSLT14",
            "",
        ),
    ],
    ids=lambda value: str(value),
)
def test_the_nearest_recipe_is_of_such_a_model_and_says_where_its_rate_lies(
    case: ModelToTrain, recipe: str, off: str
) -> None:
    placement, rate, _ = recommended(choose(case))
    (named,) = (one for one in recipes() if one.name == recipe)
    assert named.model == case.model
    assert (
        f"has {learning_rate(named.peak_lr)} with {named.placement}{off} ({named.citation})"
        in rate.sure
    )
    low, high = (float(number) for number in re.findall(r"between (\S+) and (\S+)", rate.says)[0])
    assert (named.peak_lr < low, named.peak_lr > high) == ("below" in off, "above" in off)
    read = [
        one for one in recipes() if one.model == case.model and one.optimizer in ("adam", "adamw")
    ]
    having = sum(one.placement == "pre-ln" for one in read)
    told = (
        f"Published recipes for such models that have it: {having} of {len(read)}. The nearest in "
        "size has "
    )
    assert f"{told}{named.placement}: {named.citation}." in placement.sure


def test_recipes_of_images_say_nothing_of_models_of_text() -> None:
    bert = replace(GPT, model="encoder-only")
    read = [
        one
        for one in recipes()
        if one.model == "encoder-only" and one.optimizer in ("adam", "adamw")
    ]
    of_text = [one for one in read if not one.of_images]
    assert len(of_text) < len(read)
    having = sum(one.placement == "pre-ln" for one in of_text)
    assert (
        f"have it: {having} of {len(of_text)}. The nearest in size has post-ln: BERT-base"
        in first_of(bert).sure
    )


def test_what_few_published_rates_stand_behind_says_so() -> None:
    muon, adam = (
        recommended(choose(replace(GPT, optimizer=name)))[1] for name in ("muon", "adamw")
    )
    count = sum(one.optimizer == "muon" for one in recipes())
    assert f" of {HELD[1]} ({count} under this optimiser)" in muon.sure
    assert "under this optimiser" not in adam.sure


def test_where_nothing_ends_below_the_baseline_it_says_what_that_ends_below() -> None:
    case = ModelToTrain(model="encoder-decoder", blocks=6, width=512, optimizer="adam")
    means = {
        one["placement"]: fmean(one["last_loss_nats"]) for one in result("converged")["endings"]
    }
    baseline = means.pop("pre-ln")
    nearest = min(means, key=lambda name: means[name])
    sure = recommended(choose(case))[0].sure
    assert (
        "In runs of 6 blocks of width 128 (results/converged) it ends "
        f"{means[nearest] - baseline:.3f} ± " in sure
    )
    assert sure.endswith(f"below {nearest}.")


@pytest.mark.parametrize("blocks", [6, 12, 24])
def test_a_placement_that_is_named_gets_the_rate_that_the_doctor_names_for_it(blocks: int) -> None:
    """Post-LN's falls faster with depth than the recommended Pre-LN's: two numbers, each told with
    its placement."""
    case = replace(GPT, blocks=blocks)
    _, rate, warmup = recommended(choose(case, ["post-ln"]))
    _, alone, _ = recommended(choose(case))
    facts = RateFacts(
        optimizer="adamw",
        width=GPT.width,
        sublayers=2 * blocks,
        normed_sums=1.0,
        tokens=GPT.tokens,
    )
    doctors = typical_rate(facts)
    assert doctors is not None
    assert rate.says.startswith(f"{alone.says}, with pre-ln; post-ln: ")
    assert all(learning_rate(one.rate, 2) in rate.says for one in doctors.by_batch)
    assert warmup.says.endswith(f"{usual_warmup(doctors.warmups)[0]} with post-ln")
    _, same, _ = recommended(choose(case, ["pre-ln", "peri-ln"]))
    assert "-ln" not in same.says
