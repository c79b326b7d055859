"""The study of amplification: orders and exponents of made-up changes, what is measured, and the smallest scale."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from normscope_studies.amplification.claims import ORDERS, claims, growths, predicted_exponent
from normscope_studies.amplification.measure import (
    RANDOM,
    SMALL_RATES,
    AmplificationConfig,
    DrawnStack,
    changes,
)
from normscope_studies.amplification.study import SCALES, STUDY
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study

SMOKE: AmplificationConfig = SCALES["smoke"].config
SHALLOW = {"depths": (3, 6, 12), "alone_blocks": 12}
CONFIG = AmplificationConfig(placements=("post-ln", "pre-ln", "deepnorm"), updates=(RANDOM, "adam"), **SHALLOW)


def test_an_order_is_its_exponent_over_the_depths() -> None:
    depths = (6, 12, 24, 48)
    assert ORDERS["post-ln"].growth(depths) == [1, 2, 4, 8]
    assert ORDERS["deepnorm"].growth(depths) == [1, 1, 1, 1]
    assert ORDERS["pre-ln"].growth(depths)[-1] == pytest.approx(math.log(96) / math.log(12))
    # The logarithms of two depths have one slope.
    assert ORDERS["pre-ln"].exponent((6, 48)) == pytest.approx(math.log(math.log(96) / math.log(12)) / math.log(8))


def test_claims_are_judged_by_intervals_of_exponents_and_sums() -> None:
    """Random updates as the papers say; Adam's as the square of the depth, and agreeing."""
    powers = {"post-ln": 1.0, "pre-ln": ORDERS["pre-ln"].exponent(CONFIG.depths), "deepnorm": 0.0}

    def seed(placement: str, blocks: int, noise: float) -> dict[str, Any]:
        random = {"output": noise * blocks ** powers[placement], "alone": noise}
        return {RANDOM: random, "adam": {"output": noise * blocks**2, "alone": 0.1 * noise}}

    found = {
        (placement, blocks): [seed(placement, blocks, noise) for noise in (0.97, 1.0, 1.03)]
        for placement in CONFIG.placements
        for blocks in CONFIG.depths
    }
    grown = growths(CONFIG, found)
    for one in grown:
        wanted = powers[one.placement] if one.update == RANDOM else 2.0
        assert float(one.exponent.mean) == pytest.approx(wanted, abs=1e-9)
    made = {claim.name: claim for claim in claims(CONFIG, grown)}
    for name in ("Post-LN: O(N)", "Pre-LN: O(log N)", "DeepNorm: O(1)"):
        assert made[name].verdict == "undecided", name  # one setting for it, one against
        assert made[name].conditions == "a random update; not Adam", name
    # Adam's were made up to grow as the square, which theory does not say.
    assert made["Predicted without a model, Adam"].verdict != "reproduced"
    assert made["Independent changes, a random update"].verdict == "reproduced"
    assert made["Independent changes, Adam"].verdict == "contradicted"


def test_exponents_are_predicted_as_the_command_predicts_them() -> None:
    from normscope.theory.predict import Update, fitted, output_changes

    small = replace(SMOKE, placements=("pre-ln",), depths=(2, 4, 8), alone_blocks=4)
    values = output_changes("pre-ln", replace(small.model(2), sequences=1), (2, 4, 8), Update(optimizer="adam"))
    assert predicted_exponent(small, "pre-ln", "adam") == pytest.approx(fitted((2, 4, 8), values["encoder"]).exponent)
    assert predicted_exponent(small, "attn-res", "adam") is None


def test_what_is_measured_is_the_change_of_the_stack_itself() -> None:
    """Against a step of Adam made by hand; and as the square of the rate, whatever that is."""
    model = replace(SMOKE, width=8).model(2)
    found = changes("pre-ln", model, ("adam", "lion"), ("adam",), 1)
    drawn = DrawnStack("pre-ln", model, 1)
    rate = 1e-5
    optimizer = torch.optim.Adam([p for p in drawn.stack.parameters() if p.requires_grad], lr=rate, eps=1e-8)
    before = drawn.output().detach()
    functional.cross_entropy(drawn.output() @ drawn.rows_VD.T, drawn.targets_N).backward()
    optimizer.step()
    with torch.no_grad():
        change = float((drawn.output() - before).square().mean() / before.square().mean()) / rate**2
    assert found["adam"]["output"] == pytest.approx(change, rel=1e-2)
    # Both move by the gradient's sign, but for Adam's epsilon.
    assert found["lion"]["output"] == pytest.approx(found["adam"]["output"], rel=1e-2)
    assert len(found["adam"]["stream"]) == 2
    assert found["adam"]["sublayers"]["amplified"][0] == pytest.approx(0.0, abs=1e-12)
    assert "alone" in found["adam"]
    assert "alone" not in found["lion"]


def test_theory_moves_its_own_matrices_and_the_placement_s_numbers() -> None:
    drawn = DrawnStack("rezero", SMOKE.model(2), 1)
    moved = drawn.moved_at_random(SMALL_RATES[RANDOM], 1)
    assert {name.removeprefix("blocks.") for name in moved} == {
        f"{block}.{name}"
        for block in (0, 1)
        for name in ("attention.f.value.weight", "feed_forward.f.ffn_in.weight", "feed_forward.f.ffn_out.weight")
    } | {"0.placed.gate", "1.placed.gate"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"placements": ()}, "placements: give one or more different values"),
        ({"updates": ("adam", "sgdm")}, "updates: sgdm is not one"),
        ({"updates": ("sgd",)}, "alone_of: random, adam is not among the updates"),
        ({"alone_blocks": 7}, "alone_blocks=7 must be one of depths"),
        ({"depths": (12, 6)}, "depths: give at least two in rising order"),
        ({"seeds": 1}, "seeds must be at least 2"),
        ({"edge": 0.0}, "edge must be positive"),
    ],
)
def test_values_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AmplificationConfig(**settings)


def test_the_smallest_scale_measures_everything_once(tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    findings, page = run_study(STUDY, SMOKE, pieces, command="normscope study amplification", scale="smoke")
    assert len(pieces.made) == 2 * 2 * 2
    assert {row["placement"] for row in findings.data["growth"]} == {"post-ln", "rezero"}
    assert "How the output&#39;s change by one update grows with the depth" in page.read_text(encoding="utf-8")
    again = Pieces(tmp_path)
    run_study(STUDY, SMOKE, again, command="normscope study amplification", scale="smoke")
    assert again.made == []
