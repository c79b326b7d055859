"""What is recommended: three lines, from what is near, else from recipes that were read, and never from nothing."""

import re
from dataclasses import replace

import pytest

from normscope.choosing.case import ModelToTrain, counts_for
from normscope.choosing.choice import choose
from normscope.choosing.evidence import published, stored
from normscope.choosing.page import CASES
from normscope.choosing.parts import parts
from normscope.choosing.recommending import plain, recommended

GPT = ModelToTrain(model="decoder-only", blocks=12, width=768, optimizer="adamw", tokens=1e10)
SMALL = ModelToTrain(model="decoder-only", blocks=8, width=64, optimizer="adam", tokens=2e5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_answer_begins_with_three_lines(case: ModelToTrain) -> None:
    choice = choose(case)
    first = parts(choice)[0]
    assert [line.partition(":")[0] for line in first.before] == ["Placement", "Peak rate", "Warm-up"]
    assert all(" Surer: " in line for line in first.before)
    assert [one["what"] for one in plain(choice)["recommended"]] == ["Placement", "Peak rate", "Warm-up"]
    # Whatever is cited is there: a result that counts, or a source that was read.
    known = {one.citation for one in published() if one.checked == "read"}
    for line in recommended(choice):
        assert set(re.findall(r"results/(\w+)", line.sure)) <= {one.setting.result for one in choice.measured}
        for cited in re.findall(r"\((?!results/)([^()]*[a-z]/[^()]*|Xiong[^()]*)\)", line.sure):
            assert cited in known, cited


def test_far_from_what_was_measured_recipes_that_were_read_count() -> None:
    placement, rate, warmup = recommended(choose(GPT))
    assert (placement.says, placement.sure[:8]) == ("pre-ln", "Not sure")
    (recipe,) = (one for one in published() if "pythia-160m" in one.citation)
    assert recipe.citation in rate.sure
    assert rate.says == "6e-4, between 2e-4 and 1.8e-3"
    assert warmup.says == recipe.warmup
    wider = recommended(choose(replace(GPT, width=5120, blocks=36)))[1]
    assert wider.says.startswith("1.2e-4")
    # Under Muon another recipe counts, and under SGD there is none.
    muon, sgd = (recommended(choose(replace(GPT, optimizer=name)))[1] for name in ("muon", "sgd"))
    assert "nanochat" in muon.sure
    assert muon.says.startswith("0.02")
    assert sgd.says == "not known under this optimiser"


def test_near_what_was_measured_ours_counts() -> None:
    choice = choose(SMALL)
    placement, rate, warmup = recommended(choice)
    (lower,) = (one for one in choice.answers if one.question.name == "lower-loss")
    assert placement.says == lower.of("supported")[0].placement
    assert placement.sure.startswith("Measured near this size")
    rates = [one for one in stored().rates if one.placement == placement.says and counts_for("adam", one.optimizer)]
    assert float(rate.says.partition(",")[0]) in [pytest.approx(one.peak_lr, rel=5e-3) for one in rates]
    assert warmup.says in ("none needed", "yes, as long as in that result") or "recipe" in warmup.sure


def test_where_nothing_is_known_it_says_so() -> None:
    placement, rate, warmup = recommended(
        choose(ModelToTrain(model="encoder-only", blocks=6, width=128, optimizer="lion"))
    )
    assert placement.says == "pre-ln"
    assert rate.says == "not known under this optimiser"
    assert warmup.sure.startswith("A guess")
