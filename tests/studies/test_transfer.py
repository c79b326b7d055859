"""The study of transfer: exponents of made-up sizes, best rates, what is measured, and the smallest scale."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import in_process
from normscope.errors import UserError
from normscope.tasks.language_model import LANGUAGE_MODEL
from normscope_studies.engine import ladders as ladders_module
from normscope_studies.engine.ladders import Ladder, LadderRun, WarmupPair
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.transfer.config import AXES, SCALES, TransferConfig
from normscope_studies.transfer.drifts import (
    Carries,
    SizedModel,
    at_an_end,
    best_lrs,
    coordinate_drifts,
    rate_drifts,
    run_config,
)
from normscope_studies.transfer.measure import WHAT, coordinates
from normscope_studies.transfer.study import STUDY, claims

SMOKE: TransferConfig = SCALES["smoke"].config
CONFIG = TransferConfig(placements=("pre-ln", "completep"))


def run_of(nats: float, *, finite: bool = True) -> LadderRun:
    cell: Any = SimpleNamespace(name="made up")
    return LadderRun(cell=cell, final_nats=nats, first_nats=6.0, finite=finite)


def ladder_of(wanted: list[float]) -> Ladder:
    """A parabola over the logarithm of the rate with its bottom where it is wanted, one a seed."""
    rows = [[run_of(4 + 0.1 * (math.log(lr) - math.log(best)) ** 2) for lr in CONFIG.peak_lrs] for best in wanted]
    return Ladder(warmup_updates=0, peak_lrs=CONFIG.peak_lrs, runs=rows, again={})


def test_the_best_rate_is_the_parabola_s_bottom_and_says_where_the_ladder_ends() -> None:
    made = ladder_of([3e-3, 6e-3])
    assert best_lrs(made) == pytest.approx([3e-3, 6e-3], rel=1e-9)
    assert not at_an_end(made)
    assert at_an_end(ladder_of([3e-3, 1.0]))
    lost = replace(made, runs=[[run_of(9.0, finite=False), *made.runs[0][1:]]])
    assert best_lrs(lost) == pytest.approx([3e-3], rel=1e-6)


def test_an_exponent_is_that_of_the_power_law_and_decides_by_its_interval() -> None:
    noise = (0.99, 1.0, 1.01)
    pairs = {
        SizedModel(placement, *size): WarmupPair(without=made, warm=made)
        for placement in CONFIG.placements
        for axis in AXES
        for size in CONFIG.sizes(axis)
        # Pre-LN's falls as one over the width and stays over the depth; CompleteP's stays over both.
        for made in [
            ladder_of([5e-3 * seed * (size[0] / 32) ** (-1 if placement == "pre-ln" else 0) for seed in noise])
        ]
    }
    found = {(drift.placement, drift.axis, drift.at): drift for drift in rate_drifts(CONFIG, pairs)}
    for warmup in CONFIG.warmups:
        assert found["pre-ln", "width", warmup].carries == Carries.DRIFTS
        assert float(found["pre-ln", "width", warmup].found.mean) == pytest.approx(-1, abs=1e-6)
        assert found["pre-ln", "depth", warmup].carries == Carries.TRANSFERS
        assert found["completep", "width", warmup].carries == Carries.TRANSFERS
    first = SizedModel("completep", *CONFIG.sizes("width")[0])
    ended = pairs | {first: replace(pairs[first], without=ladder_of([1.0, 1.0, 1.0]))}
    beyond = {(drift.placement, drift.axis, drift.at): drift for drift in rate_drifts(CONFIG, ended)}
    assert beyond["completep", "width", 0].at_an_end == 1
    assert beyond["completep", "width", 0].carries == Carries.UNDECIDED
    assert beyond["completep", "width", 10].carries == Carries.TRANSFERS


def test_changes_are_judged_along_each_axis_and_the_promise_by_its_own() -> None:
    def moved(placement: str, width: int, blocks: int) -> list[dict[str, list[float]]]:
        power = 0.5 if placement == "pre-ln" else 0.0
        values = [0.1 * (width / 32) * (blocks / 4) ** power * update for update in CONFIG.coordinate_updates]
        return [{of: [seed * value for value in values] for of in WHAT} for seed in (0.9, 1.0, 1.2)]

    found = {
        SizedModel(placement, *size): moved(placement, *size)
        for placement in CONFIG.placements
        for axis in AXES
        for size in CONFIG.sizes(axis)
    }
    drifts = coordinate_drifts(CONFIG, found)
    for drift in drifts:
        wanted = 1.0 if drift.axis == "width" else 0.5 if drift.placement == "pre-ln" else 0.0
        assert float(drift.found.mean) == pytest.approx(wanted, abs=1e-9)
        assert drift.carries == (Carries.DRIFTS if wanted else Carries.TRANSFERS)
    said = {claim.name: claim.verdict for claim in claims(CONFIG, drifts, drifts)}
    assert said["CompleteP: the first updates"] == "reproduced"


def test_a_change_is_that_of_the_model_itself() -> None:
    """Against the same updates made by hand, in float32."""
    config = run_config(SMOKE, "pre-ln", 16, 2)
    corpus = LANGUAGE_MODEL.open(config)
    found = coordinates(config, corpus, seed=1, rate=1e-2, after=(1, 3))
    model = LANGUAGE_MODEL.build(config, corpus.tokeniser)
    batches = LANGUAGE_MODEL.batches(config, corpus)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-8, fused=True)
    with torch.no_grad():
        before = batches(0).run(model).double()
    for update in range(1, 4):
        optimizer.zero_grad()
        batch = batches(update)
        batch.loss(batch.run(model)).backward()
        optimizer.step()
        with torch.no_grad():
            change = float((batches(0).run(model).double() - before).square().mean().sqrt())
        if update != 2:
            assert found["logits"][(1, 3).index(update)] == pytest.approx(change, rel=1e-6)
    assert all(value > 0 for values in found.values() for value in values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"placements": ()}, "placements: give one or more different values"),
        ({"widths": (64, 32)}, "widths must be positive and rise"),
        ({"widths": (40, 48)}, "widths must be multiples of head_width=16"),
        ({"depths": (4,)}, "depths: an exponent takes at least two sizes"),
        ({"warmup_updates": 60}, "warmup_updates must lie between"),
        ({"rate_edge": 0.0}, "rate_edge must be positive"),
        ({"placements": ("t-fixup",)}, "t-fixup is not defined for a decoder alone"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransferConfig(**changes)


def test_text_that_is_not_there_is_told() -> None:
    with pytest.raises(UserError, match="prepare one with `normscope data documents`"):
        run_config(TransferConfig(text="nowhere"), "pre-ln", 32, 4)


def test_the_smallest_scale_measures_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladders_module, "run_cells", in_process.run_cells)
    config = replace(SMOKE, placements=("completep",), peak_lrs=(1e-3, 1e-2))
    pieces = Pieces(tmp_path)
    findings, page = run_study(STUDY, config, pieces, command="normscope study transfer", scale="smoke")
    assert len(pieces.made) == 3 * 2
    assert len(findings.data["ladders"]) == 3 * 2
    assert {row["axis"] for row in findings.data["exponents"]} == set(AXES)
    assert "How the best learning rate moves with width and depth" in page.read_text(encoding="utf-8")
    again = Pieces(tmp_path)
    run_study(STUDY, config, again, command="normscope study transfer", scale="smoke")
    assert again.made == []
