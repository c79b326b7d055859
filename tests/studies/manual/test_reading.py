"""What is read from committed results is what the package holds, and what results say in words."""

import math
import re
from pathlib import Path

import pytest

from choosing.recomputed import RESULTS, result
from normscope.choosing.evidence import FILE, packed, stored
from normscope.errors import UserError
from normscope_studies.manual.arms import MeasuredArm, difference
from normscope_studies.manual.grid_sizes import SIZES
from normscope_studies.manual.reading import collect


def test_the_package_holds_what_the_results_say_now() -> None:
    again = "run `python -m normscope_studies.manual docs` and commit what it writes"
    assert packed(collect(RESULTS)) == FILE.read_text(encoding="utf-8"), again


def test_sizes_of_comparisons_are_those_that_their_results_state_in_words() -> None:
    for name, size in SIZES.items():
        what = result(name)["what"]
        assert what["Model"].startswith(f"{size.blocks}+{size.blocks} blocks, width {size.width},")
        assert what["Duration"].startswith(f"{size.updates} updates;")
        limits = [
            int(number) for number in re.findall(r"\d+", what["Duration"].partition("at most")[2])
        ]
        assert math.prod(limits) == size.batch_tokens
        assert what["Corpus"].startswith(size.text)
    tokens = {name: setting.tokens for name, setting in stored().settings.items()}
    assert tokens["optimizers_long"] == 1000 * 2048


def test_results_that_are_not_there_are_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such file; .* in a clone"):
        collect(tmp_path)


def test_what_learned_at_no_rate_where_the_baseline_did_is_decided_against() -> None:
    """Post-LN of 16 and 32 blocks, of all rates that were tried; what learned stays undecided."""
    by_depth = [one for one in collect(RESULTS).findings if one.setting.startswith("rate_transfer")]
    against = {one.setting for one in by_depth if one.answer == "contradicted"}
    assert against == {"rate_transfer, 16 blocks", "rate_transfer, 32 blocks"}
    for one in by_depth:
        at_none = "learned at none of" in one.note
        assert (one.placement == "post-ln" and one.setting in against) == at_none
        assert one.answer == ("contradicted" if at_none else "undecided")


def arm(losses: list[float], *, at_an_end: bool) -> MeasuredArm:
    return MeasuredArm(
        placement="deepnorm",
        optimizer="adam",
        warmup_updates=0,
        peak_lr=1e-3,
        losses=losses,
        source="/losses",
        at_an_end=at_an_end,
    )


@pytest.mark.parametrize(
    ("first_at_an_end", "second_at_an_end", "less", "answer"),
    [
        (False, False, 0.3, "contradicted"),
        (False, False, -0.3, "supported"),
        (True, False, 0.3, "undecided"),
        (False, True, -0.3, "undecided"),
        # Behind the end the better side can only be better still.
        (True, False, -0.3, "supported"),
        (False, True, 0.3, "contradicted"),
    ],
)
def test_a_side_whose_best_rate_is_at_an_end_is_not_decided_against(
    first_at_an_end: bool, second_at_an_end: bool, less: float, answer: str
) -> None:
    losses = [2.0, 2.01, 1.99]
    first = arm([loss + less for loss in losses], at_an_end=first_at_an_end)
    second = arm(losses, at_an_end=second_at_an_end)
    setting = stored().settings["converged"]
    row = difference("lower-loss", setting, first, second)
    assert row.answer == answer
    assert ("at an end" in row.note) == (answer == "undecided")


def test_every_finding_that_decides_had_its_worse_side_inside_its_sweep() -> None:
    """Of the converged ones DeepNorm was best at the least of its rates, and is not decided."""
    endings = {one["placement"]: one for one in result("converged")["endings"]}
    found = {one.placement: one for one in stored().findings if one.setting == "converged"}
    ends = {name for name, one in endings.items() if one["best_lr"] == min(one["peak_lrs"])}
    assert ends == {"deepnorm"}
    for name, one in found.items():
        assert (one.answer == "undecided") == (name in ends)


def test_one_rate_for_both_is_shown_and_speaks_for_neither() -> None:
    (one,) = (
        one
        for one in stored().findings
        if one.setting == "multi30k_tiny" and one.question == "lower-loss"
    )
    arms = result("multi30k_tiny")["arms"]
    losses = [[seed["valid_loss_nats"] for seed in arm["seeds"]] for arm in arms]
    less = [post - pre for pre, post in zip(*losses, strict=True)]
    assert one.mean == pytest.approx(sum(less) / len(less), abs=1e-5)
    assert (one.placement, one.answer, one.leans) == ("post-ln", "undecided", False)
