"""What is recommended: three lines, from what is near, else from recipes that were read, and never from nothing."""

import re
from dataclasses import replace

import pytest

from normscope.choosing.case import ModelToTrain
from normscope.choosing.choice import choose, plain, recommended
from normscope.choosing.page import CASES
from normscope.choosing.parts import parts
from normscope.choosing.rates import RateFacts, normed_share, recipes, typical_rate
from normscope.report.words import learning_rate

GPT = ModelToTrain(model="decoder-only", blocks=12, width=768, optimizer="adamw", tokens=1e10)
SMALL = ModelToTrain(model="decoder-only", blocks=4, width=128, optimizer="muon", tokens=2e6)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_answer_begins_with_three_lines(case: ModelToTrain) -> None:
    choice = choose(case)
    first = parts(choice)[0]
    assert [line.partition(":")[0] for line in first.before] == ["Placement", "Peak rate", "Warm-up"]
    assert all(" Surer: " in line for line in first.before)
    assert [one["what"] for one in plain(choice)["recommended"]] == ["Placement", "Peak rate", "Warm-up"]
    # Whatever is cited is there: a result that counts, or a source that was read.
    known = {one.citation for one in recipes()}
    for line in recommended(choice):
        assert set(re.findall(r"results/(\w+)", line.sure)) <= {one.setting.result for one in choice.measured}
        for cited in re.findall(r"\((?!results/)([^()]*[a-z]/[^()]*)\)", line.sure):
            assert cited in known, cited


def test_the_rate_is_that_of_the_law_with_what_it_stands_on() -> None:
    placement, rate, warmup = recommended(choose(GPT))
    assert (placement.says, placement.sure[:8]) == ("pre-ln", "Not sure")
    (recipe,) = (one for one in recipes() if one.name == "GPT-2 small")
    assert recipe.citation in rate.sure
    found = typical_rate(RateFacts(optimizer="adamw", width=768, sublayers=24, normed_sums=0.0))
    assert found is not None
    assert rate.says == " ".join(
        (f"{learning_rate(found.rate, 2)}, between", learning_rate(found.low, 2), "and", learning_rate(found.high, 2))
    )
    own = sorted(
        one.warmup_updates / one.updates
        for one in recipes()
        if one.updates and one.warmup_updates is not None and one.optimizer in ("adam", "adamw")
        if normed_share(one.placement) == 0
    )
    assert warmup.says.startswith(f"{100 * own[len(own) // 2]:.2g} % of the updates, the median of {len(own)} recipes")
    wider = recommended(choose(replace(GPT, width=5120, blocks=36)))[1]
    assert float(wider.says.partition(",")[0]) < found.low
    # Under Muon another recipe counts, and under SGD there is none near.
    muon, sgd = (recommended(choose(replace(GPT, optimizer=name))) for name in ("muon", "sgd"))
    assert "Moonlight" in muon[1].sure
    assert [line.says for line in sgd[1:]] == ["not known under this optimiser", "not known"]


def test_near_what_was_measured_ours_counts() -> None:
    choice = choose(SMALL)
    placement, _, warmup = recommended(choice)
    (lower,) = (one for one in choice.answers if one.question.name == "lower-loss")
    assert placement.says == lower.of("supported")[0].placement
    assert placement.sure.startswith("Measured near this size")
    assert warmup.says in ("none needed", "yes, as long as in that result") or "recipe" in warmup.says
