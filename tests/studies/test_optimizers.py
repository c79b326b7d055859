"""The cross of placement, optimiser and warm-up: made-up runs judged, rates chosen, and the
smallest scale.
"""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import in_process
from normscope.errors import UserError
from normscope.optim.optimizers import OPTIMIZERS
from normscope.placement import registered
from normscope_studies.engine import trainings
from normscope_studies.engine.judging import bigram_nats
from normscope_studies.engine.ladders import Ladder, LadderRun, WarmupPair, lowest_rates
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.optimizers.claims import WarmupNeed, all_needs, best_ladder, claims
from normscope_studies.optimizers.config import (
    LADDERS,
    PLACEMENTS,
    SCALES,
    OptimizersConfig,
    base_config,
    cells_of,
)
from normscope_studies.optimizers.page import tables
from normscope_studies.optimizers.study import STUDY

SMOKE: OptimizersConfig = SCALES["smoke"]
RATES = (1e-3, 2e-3, 4e-3)


def run_of(nats: float, *, finite: bool = True) -> LadderRun:
    cell: Any = SimpleNamespace(name="made up")
    return LadderRun(cell=cell, final_nats=nats, first_nats=6.0, finite=finite)


def ladder_of(
    warmup_updates: int, finals: list[float], others: list[float] | None = None
) -> Ladder:
    """finals: at 2e-3, one a seed; others: at 1e-3."""
    again = {
        2e-3: [run_of(nats) for nats in finals],
        1e-3: [run_of(nats) for nats in others or [9.0] * len(finals)],
    }
    row = [run_of(5.5), run_of(finals[0]), run_of(5.6, finite=False)]
    return Ladder(warmup_updates=warmup_updates, peak_lrs=RATES, runs=[row], again=again)


def pair_of(without: list[float], warm: list[float]) -> WarmupPair:
    return WarmupPair(without=ladder_of(0, without), warm=ladder_of(SMOKE.warmup_updates, warm))


@pytest.mark.parametrize(
    ("without", "warm", "expected"),
    [
        ([4.50, 4.52, 4.49], [4.00, 4.01, 4.00], WarmupNeed.NEEDS),
        ([4.05, 4.06, 4.04], [4.00, 4.01, 3.99], WarmupNeed.GAINS),
        # Certainly above 0, and perhaps above 0.1.
        ([4.10, 4.16, 4.13], [4.00, 4.01, 4.01], WarmupNeed.GAINS),
        ([4.00, 4.02, 3.98], [4.01, 4.00, 4.00], WarmupNeed.DOES_NOT),
        ([3.50, 3.52, 3.51], [4.00, 4.01, 4.00], WarmupNeed.DOES_NOT),
        ([4.00, 4.90, 4.20], [4.00, 4.01, 4.00], WarmupNeed.UNDECIDED),
        ([4.50], [4.00], WarmupNeed.UNDECIDED),
    ],
)
def test_the_verdict_is_that_of_the_interval(
    without: list[float], warm: list[float], expected: WarmupNeed
) -> None:
    pairs = {("post-ln", "adamw", 2): pair_of(without, warm)}
    assert all_needs(pairs, 0.1, unigram_nats=6.0) == {("post-ln", "adamw", 2): expected}


def test_what_has_not_learned_needs_nothing_and_does_without_nothing() -> None:
    key = ("post-ln", "adamw", 2)
    pairs = {key: pair_of([4.50, 4.52, 4.49], [4.00, 4.01, 4.00])}
    assert all_needs(pairs, 0.1, unigram_nats=4.06)[key] == WarmupNeed.NEEDS
    assert all_needs(pairs, 0.1, unigram_nats=4.05)[key] == WarmupNeed.UNLEARNED
    said = {
        claim.name: claim
        for claim in claims(
            replace(SMOKE, optimizers=("adamw",), placements=("post-ln",)), pairs, 4.05
        )
    }
    made = said["Post-LN needs warm-up"]
    assert made.verdict == "undecided"
    assert made.found.endswith("did not learn, so that it decides nothing: AdamW, warm-up of 50 %")


def test_one_answer_in_twenty_is_not_a_finding() -> None:
    """A gain of 0.027 ± 0.014 is one by itself, and among twelve it is only sure not to be
    large.
    """
    gains = {
        ("post-ln", str(number), 2): pair_of([4.0, 4.02, 3.98], [4.01, 4.00, 4.00])
        for number in range(11)
    }
    lone = {("post-ln", "alone", 2): pair_of([4.02, 4.03, 4.03], [4.0, 4.0, 4.0])}
    assert all_needs(lone, 0.1, 6.0)["post-ln", "alone", 2] == WarmupNeed.GAINS
    assert all_needs(lone | gains, 0.1, 6.0)["post-ln", "alone", 2] == WarmupNeed.DOES_NOT


def test_an_arm_stands_for_the_rate_with_the_lowest_mean_over_its_seeds() -> None:
    assert ladder_of(0, [4.0, 4.2], [4.0, 4.4]).best_lr == 2e-3
    low = ladder_of(0, [4.0, 4.2], [4.1, 3.9])
    assert (low.best_lr, low.finals, low.at_an_end) == (1e-3, [4.1, 3.9], True)
    assert low.mean_nats == pytest.approx(4.0)
    # A run that did not stay finite counts as its loss at initialisation, and is counted.
    assert low.lost == 1
    assert low.sensitivity.value == pytest.approx((1.5 + 0.0 + 2.0) / 3)
    ladder = [
        [run_of(nats) for nats in (4.0, 3.0, 3.5)],
        [run_of(nats) for nats in (4.0, 5.0, 3.5)],
    ]
    assert lowest_rates(ladder, RATES, 1) == (4e-3,)
    assert lowest_rates(ladder, RATES, 2) == (1e-3, 4e-3)


def test_claims_are_judged_by_optimiser_and_the_wall_has_every_pair() -> None:
    config = replace(SMOKE, optimizers=("adamw", "muon"))
    jittered = lambda nats: [nats + jitter for jitter in (0.0, 0.01, -0.01)]  # noqa: E731
    found = {
        (placement, optimizer, warmup): pair_of(jittered(without - less), jittered(4.0 - less))
        for optimizer, less in (("adamw", 0.0), ("muon", 0.3))
        for placement, without in (("post-ln", 5.5), ("pre-ln", 4.0))
        for warmup in (1, 2)
    }
    # With the short warm-up, Pre-LN ends at 4.6 under AdamW, which no best of all warm-ups stands
    # at.
    found["pre-ln", "adamw", 1] = pair_of(jittered(4.0), jittered(4.6))
    said = {claim.name: (claim.verdict, claim.conditions) for claim in claims(config, found, 6.0)}
    assert said["Post-LN needs warm-up"] == ("reproduced", "")
    assert said["Pre-LN does without warm-up"] == ("reproduced", "")
    # Post-LN's better arm is the warm one under both.
    assert said["Muon ends lower than AdamW"] == ("reproduced", "")
    wall, *ends = tables(config, found, all_needs(found, config.needs_nats, 6.0))
    assert [row[0] for row in wall.rows] == ["Post-LN", "Pre-LN"]
    assert wall.columns == (
        "placement",
        *(f"{of}, warm-up of {n} %" for of in ("AdamW", "Muon") for n in (25, 50)),
    )
    assert [str(cell).partition(":")[0] for cell in wall.rows[0][1:]] == ["needs it"] * 4
    assert [str(cell).partition(":")[0] for cell in wall.rows[1][1:]] == ["does not"] * 4
    assert best_ladder(found, "pre-ln", "adamw").mean_nats == pytest.approx(4.0)
    assert [len(table.columns) for table in ends] == [1 + 3 * 4] * 2
    assert list(ends[0].rows[0][:2]) == ["Post-LN", pytest.approx(5.5)]
    assert ends[0].rows[1][5] == pytest.approx(4.6)


def test_the_bigram_baseline_is_that_of_counted_pairs() -> None:
    """By hand, of two tokens: after 0 comes 1 twice and 0 once, after 1 comes 0 twice."""
    train = np.array([0, 1, 0, 1, 0, 0])
    alone = {0: (4 + 1) / (6 + 2), 1: (2 + 1) / (6 + 2)}
    after = {(0, 0): (1 + 2 * alone[0]) / (3 + 2), (0, 1): (2 + 2 * alone[1]) / (3 + 2)}
    after[1, 0] = (2 + 1 * alone[0]) / (2 + 1)
    expected = -(math.log(after[0, 0]) + math.log(after[0, 1]) + math.log(after[1, 0])) / 3
    assert bigram_nats(train, np.array([0, 0, 1, 0])) == pytest.approx(expected, rel=1e-12)


def test_the_lists_are_of_what_there_is_and_rates_rise() -> None:
    assert len(PLACEMENTS) == 12
    assert set(PLACEMENTS) <= set(registered())
    assert set(LADDERS) <= set(OPTIMIZERS)
    for rates in LADDERS.values():
        assert len(rates) == 7
        assert list(rates) == sorted(rates)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"placements": ()}, "placements: give one or more different values"),
        ({"placements": ("t-fixup",)}, "t-fixup is not defined for a decoder alone"),
        ({"optimizers": ("adagrad",)}, "adagrad has no ladder of rates"),
        ({"ladder_seeds": 4}, "ladder_seeds must lie in"),
        ({"best_rates": 8}, "best_rates <= rates"),
        ({"warmup_updates": 0}, "warmup_updates must lie between"),
        (
            {"short_warmup_updates": 12},
            "short_warmup_updates must lie between 0 and warmup_updates=12",
        ),
        ({"needs_nats": 0.0}, "needs_nats must be positive"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OptimizersConfig(**changes)


def test_text_that_is_not_there_is_told() -> None:
    with pytest.raises(UserError, match="prepare one with `normscope data documents`"):
        base_config(OptimizersConfig(text="nowhere"))


@pytest.mark.parametrize("optimizer", LADDERS)
def test_every_optimiser_has_cells_and_sgd_alone_momentum(optimizer: str, tmp_path: Path) -> None:
    config = replace(SMOKE, optimizers=(optimizer,))
    cells = cells_of(
        config, tmp_path, ("post-ln", optimizer, 2), config.ladder(optimizer), range(2, 4)
    )
    assert len(cells) == 2 * SMOKE.rates
    assert {cell.seed for cell in cells} == {2, 3}
    for cell in cells:
        assert (cell.config.optimizer.name, cell.config.schedule.warmup_updates) == (optimizer, 2)
        assert cell.config.optimizer.momentum == (SMOKE.momentum if optimizer == "sgd" else 0.0)


def test_the_smallest_scale_trains_every_arm_and_trains_none_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    config = replace(SMOKE, optimizers=("adamw",))
    findings, page = run_study(
        STUDY, config, Pieces(tmp_path), command="normscope study optimizers", scale="smoke"
    )
    names = [path.name for path in (tmp_path / "runs").iterdir()]
    # Two placements and three warm-ups, each with a seed on two rates, and two others at the best.
    assert len(names) == 2 * 3 * (2 + 2)
    assert len([name for name in names if name.endswith("seed-1")]) == 2 * 3 * 2
    assert {row["optimizer"] for row in findings.data["pairings"]} == {"adamw"}
    assert [row["with_warmup"]["warmup_updates"] for row in findings.data["pairings"]] == [
        1,
        2,
        1,
        2,
    ]
    assert 0 < findings.data["bigram_nats"] < findings.data["unigram_nats"]
    assert f"torch {torch.__version__}" in findings.conditions["machine"]
    text = page.read_text(encoding="utf-8")
    assert "Who needs a warm-up" in text
    assert "verdicts mean nothing" in text
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("metrics.jsonl")}
    run_study(STUDY, config, Pieces(tmp_path), command="normscope study optimizers", scale="smoke")
    assert {
        path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("metrics.jsonl")
    } == times
    base = base_config(SMOKE)
    assert (base.model.position_encoding, base.model.attention.key_value_heads) == ("rotary", 1)
