"""The study of residual streams: equal parameters, made-up runs judged, what is measured, the smallest scale."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import in_process
from normscope.errors import UserError
from normscope.placement import named, registered
from normscope.runs.config import replaced
from normscope_studies.engine import ladders as ladders_module
from normscope_studies.engine.ladders import Ladder, LadderRun, WarmupPair
from normscope_studies.engine.models import trial
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.streams.measure import gradient_spread, measured, without_last_third
from normscope_studies.streams.runs import (
    NEW,
    OLD,
    PROMISES,
    SCALES,
    StreamRuns,
    StreamsConfig,
    equal_ffn_width,
    parameters,
)
from normscope_studies.streams.study import STUDY, claims

SMOKE: StreamsConfig = SCALES["smoke"].config


def run_of(nats: float, *, first: float = 6.0, finite: bool = True) -> LadderRun:
    cell: Any = SimpleNamespace(name="made up")
    return LadderRun(cell=cell, final_nats=nats if finite else first, first_nats=first, finite=finite)


def ladder_of(warmup: int, finals: list[float], row: list[float] | None = None) -> Ladder:
    """finals: at the best rate; row: over the ladder."""
    rates, row = (1e-3, 2e-3, 4e-3), row or [5.5, finals[0], 5.6]
    return Ladder(
        warmup_updates=warmup,
        peak_lrs=rates,
        runs=[[run_of(nats) for nats in row]],
        again={rates[row.index(min(row))]: [run_of(nats) for nats in finals]},
    )


def runs_of(task: str, **finals: tuple[list[float], list[float]]) -> StreamRuns:
    """finals: by placement, the last losses without warm-up and with."""
    pairs = {
        name.replace("_", "-"): WarmupPair(without=ladder_of(0, without), warm=ladder_of(50, warm))
        for name, (without, warm) in finals.items()
    }
    return StreamRuns(task=task, unigram_nats=5.8, pairs=pairs, sizes=dict.fromkeys(pairs, (8, 100)), inside={})


PRE = [4.00, 4.02, 3.98]
POST = ([5.50, 5.60, 5.55], [4.20, 4.22, 4.18])
LOWER, HIGHER, NEAR = [3.80, 3.81, 3.79], [4.30, 4.33, 4.29], [4.01, 4.03, 3.99]


def verdicts(*found: StreamRuns) -> dict[str, tuple[str, str]]:
    return {claim.name: (claim.verdict, claim.conditions) for claim in claims(StreamsConfig(), found)}


def test_a_promise_is_judged_by_each_task_and_each_placement_s_better_warmup() -> None:
    said = verdicts(
        runs_of("language-model", pre_ln=(PRE, PRE), post_ln=POST, mhc=(HIGHER, LOWER), parallel=(NEAR, HIGHER)),
        runs_of("translation", pre_ln=(PRE, PRE), post_ln=POST, mhc=(HIGHER, HIGHER), parallel=(HIGHER, HIGHER)),
    )
    assert said["Manifold-constrained hyper-connections"] == (
        "undecided",
        "language model; not translation",
    )
    assert said["Parallel block"] == ("undecided", "language model; not translation")
    assert said["Post-LN needs its warm-up"] == ("reproduced", "")
    # mHC ends half a nat higher without warm-up, parallel blocks lower.
    assert said["the newer streams do without warm-up, language model"] == (
        "undecided",
        "Parallel block; not Manifold-constrained hyper-connections",
    )
    assert said["the newer streams do without warm-up, translation"] == ("reproduced", "")


def test_seeds_that_overlap_and_single_seeds_decide_nothing() -> None:
    wide = runs_of("translation", pre_ln=(PRE, PRE), post_ln=POST, mhc=([3.0, 5.0, 4.0], HIGHER))
    assert verdicts(wide)["Manifold-constrained hyper-connections"][0] == "undecided"
    one = runs_of("translation", pre_ln=([4.0], [4.0]), post_ln=([5.0], [4.0]), mhc=([3.0], [3.0]))
    assert {verdict for verdict, _ in verdicts(one).values()} == {"undecided"}


def test_the_best_rate_is_that_of_the_lowest_mean_and_says_where_the_ladder_ends() -> None:
    arm = ladder_of(0, [4.0], row=[4.5, 4.2, 4.3])
    assert (arm.best_lr, arm.at_an_end) == (2e-3, False)
    assert arm.sensitivity.value == pytest.approx((0.3 + 0.0 + 0.1) / 3)
    falling = ladder_of(0, [4.0], row=[4.5, 4.2, 4.1])
    assert (falling.best_lr, falling.at_an_end) == (4e-3, True)
    # A run that did not stay finite counts as its loss at initialisation.
    lost = replace(arm, runs=[[run_of(4.5), run_of(4.2), run_of(math.nan, finite=False)]])
    assert lost.sensitivity.value == pytest.approx((0.3 + 0.0 + 1.8) / 3)


def test_every_listed_placement_is_registered_and_each_task_has_six_others() -> None:
    names = set(registered())
    assert set(NEW) | set(OLD) | set(PROMISES) <= names
    assert set(PROMISES) <= set(NEW)
    config = StreamsConfig()
    for model in ("decoder-only", "encoder-decoder"):
        trained = config.trained(model)
        assert len([name for name in trained if name in OLD]) == 6
        assert all(model in named(name).models for name in trained)
    assert "t-fixup" in config.trained("encoder-decoder")
    assert "t-fixup" not in config.trained("decoder-only")


@pytest.mark.parametrize(
    ("name", "placements"), [("language-model", ("mhc", "zaya", "normformer")), ("translation", ("mhc", "scale-norm"))]
)
def test_parameters_are_equal_to_within_half_a_unit_of_every_feed_forward(name: str, placements: list[str]) -> None:
    of_task = trial(SMOKE, name)
    wanted = parameters(of_task, "pre-ln", 128)
    each = wanted - parameters(of_task, "pre-ln", 127)
    for placement in placements:
        width = equal_ffn_width(of_task, placement)
        assert abs(parameters(of_task, placement, width) - wanted) <= each / 2, placement
    assert equal_ffn_width(of_task, "mhc") < 128


def test_parameters_that_leave_no_feed_forward_are_refused() -> None:
    of_task = trial(replace(SMOKE, ffn_width=16), "language-model")
    with pytest.raises(UserError, match=r"mhc has .* parameters more than pre-ln"):
        equal_ffn_width(of_task, "mhc")


def test_the_spread_of_gradients_is_over_the_decoder_s_blocks() -> None:
    norms = {
        "decoder.blocks.0.attention.f.query.weight": 3.0,
        "decoder.blocks.0.feed_forward.f.ffn_in.weight": 4.0,
        "decoder.blocks.1.attention.f.query.weight": 1.0,
        "encoder.blocks.0.attention.f.query.weight": 100.0,
        "decoder.finish.norm.main.weight": 100.0,
    }
    assert gradient_spread(norms) == pytest.approx(5.0)


def test_the_last_third_is_left_out_and_put_back() -> None:
    of_task = trial(replace(SMOKE, blocks=6), "language-model")
    model = of_task.task.build(of_task.base, of_task.task.codec_of(of_task.corpus))
    blocks = model.decoder.blocks
    with without_last_third(model.decoder):
        assert [id(block) for block in model.decoder.blocks] == [id(block) for block in blocks[:4]]
    assert model.decoder.blocks is blocks


@pytest.mark.parametrize("name", ["language-model", "translation"])
def test_blocks_that_add_nothing_are_worth_nothing(name: str) -> None:
    """A ReZero whose branches are still closed passes its input on, whatever is left out."""
    of_task = trial(replace(SMOKE, blocks=3, stack_blocks=3), name)
    folder: Any = SimpleNamespace(checkpoint=lambda which: SimpleNamespace(load_model=lambda model: None))
    closed = measured(of_task.task, of_task.corpus, replaced(of_task.base, model__placement="rezero"), folder)
    assert (closed["worth_nats"], closed["turned"]) == pytest.approx((0, 0), abs=1e-6)
    assert -1 < closed["correlation"] < 1
    open_ = measured(of_task.task, of_task.corpus, replaced(of_task.base, model__placement="post-ln"), folder)
    assert open_["turned"] > 0.01


def test_the_smallest_scale_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladders_module, "run_cells", in_process.run_cells)
    folder = tmp_path / "streams"
    config = replace(SMOKE, tasks=("language-model",), placements=("mhc",), others=())
    found, page = run_study(STUDY, config, Pieces(folder), command="test")
    assert page.is_file()
    placements = found.data["trials"]["language-model"]["placements"]
    assert set(placements) == {"pre-ln", "post-ln", "mhc"}
    for placement in placements.values():
        for arm in (placement["without_warmup"], placement["with_warmup"]):
            assert len(arm["last_loss_nats"]) == 2
            assert arm["last_loss_nats"][0] == min(arm["ladder_nats"][0])
            assert set(arm["mean_seen"]) == {"worth_nats", "turned", "correlation", "gradient_spread"}
    again = Pieces(folder)
    run_study(STUDY, config, again, command="test")
    assert again.made == []
