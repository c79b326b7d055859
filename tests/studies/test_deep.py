"""Very deep trainings: made-up runs judged, what is refused, and small ones trained."""

import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import in_process
from normscope.errors import UserError
from normscope.runs.config import load_run_config
from normscope.tasks.registry import task_of
from normscope.train import RunFolder
from normscope_studies.deep.claims import DeepTrainings, claims, largest_rise, windowed
from normscope_studies.deep.config import SCALES, DeepConfig
from normscope_studies.deep.study import STUDY, ends, figures
from normscope_studies.engine import trainings as engine_trainings
from normscope_studies.engine.ladders import Ladder, LadderRun
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study

SMOKE: DeepConfig = SCALES["smoke"]
MADE = replace(SMOKE, seeds=3, windows=4, updates=4)
UNIGRAM = 6.0
JITTER = (0.0, 0.01, -0.01)


def run_of(last: float, losses: tuple[float, ...], *, finite: bool = True) -> LadderRun:
    """Made up; losses: of every update."""
    events = [{"event": "update", "update": i, "nll_nats": x} for i, x in enumerate(losses, 1)]
    cell: Any = SimpleNamespace(name="made up", folder=SimpleNamespace(events=lambda: events))
    return LadderRun(cell=cell, final_nats=last, first_nats=6.5, finite=finite)


def trainings(
    placement: str,
    blocks: int,
    last: float,
    losses: tuple[float, ...] = (6.4, 6.0, 5.8, 5.6),
    *,
    finite: bool = True,
) -> DeepTrainings:
    """Three seeds that differ by a little."""
    runs = [run_of(last + by, losses, finite=finite) for by in JITTER]
    ladder = Ladder(warmup_updates=1, peak_lrs=(1e-3,), runs=[runs[:1]], again={1e-3: runs})
    return DeepTrainings(placement=placement, blocks=blocks, ladder=ladder, windows=4)


def at(blocks: int, deepnorm: float, post: float, pre: float) -> dict[str, DeepTrainings]:
    lasts = {"deepnorm": deepnorm, "post-ln": post, "pre-ln": pre}
    return {name: trainings(name, blocks, last) for name, last in lasts.items()}


def said(found: dict[int, dict[str, DeepTrainings]]) -> dict[str, Any]:
    return {one.name: one for one in claims(MADE, found, UNIGRAM)}


AS_PROMISED = {8: at(8, 4.6, 5.99, 4.8), 100: at(100, 4.7, 6.0, 5.5)}


def test_what_deepnet_promises_is_reproduced_where_runs_do_it() -> None:
    found = said(AS_PROMISED)
    assert {one.verdict for one in found.values()} == {"reproduced"}
    half = np.std(JITTER, ddof=1) / np.sqrt(3) * stats.t.ppf(0.975, 2)
    trains = found["DeepNorm trains at any depth"]
    assert f"8 blocks of width 16: 1.400 ± {half:.3f}" in trains.found
    assert f"100 blocks of width 8: 1.300 ± {half:.3f}" in trains.found
    beside = found["DeepNorm ends below Pre-LN that deep"]
    assert "100 blocks of width 8: −0.800" in beside.found
    assert "Corrected by Holm over 4 comparisons" in beside.found


def test_a_post_ln_that_trains_contradicts_that_it_does_not() -> None:
    found = said({8: at(8, 4.6, 4.5, 4.8), 100: at(100, 4.7, 4.6, 5.5)})
    assert found["Post-LN does not train as deep"].verdict == "contradicted"
    assert found["DeepNorm ends below Post-LN that deep"].verdict == "contradicted"
    assert found["DeepNorm ends below Pre-LN that deep"].verdict == "reproduced"


def test_between_two_that_did_not_learn_nothing_is_decided() -> None:
    found = said({8: at(8, 5.99, 6.0, 5.98), 100: at(100, 5.99, 6.0, 4.0)})
    assert found["DeepNorm trains at any depth"].verdict == "contradicted"
    below = found["DeepNorm ends below Post-LN that deep"]
    assert below.verdict == "undecided"
    assert "neither of both learned" in below.found
    # Who did learn at 100 blocks beats who did not.
    assert found["DeepNorm ends below Pre-LN that deep"].conditions.startswith("not 100 blocks")
    steady = found["DeepNorm trains without instability"]
    assert steady.verdict == "undecided"
    assert "DeepNorm of 8 blocks of width 16 did not learn: 5.990 nats" in steady.found


def test_a_loss_that_rises_and_a_run_that_is_lost_are_unsteady() -> None:
    risen = trainings("deepnorm", 8, 4.6, (6.4, 5.0, 5.3, 4.6))
    lost = trainings("deepnorm", 100, 4.6, finite=False)
    found = {8: AS_PROMISED[8] | {"deepnorm": risen}, 100: AS_PROMISED[100] | {"deepnorm": lost}}
    steady = said(found)["DeepNorm trains without instability"]
    assert steady.verdict == "contradicted"
    assert "8 blocks of width 16: 0.300 ± 0.000" in steady.found
    assert "DeepNorm of 100 blocks of width 8: a run was lost" in steady.found


def test_a_rise_is_above_the_lowest_stretch_before_it() -> None:
    losses = [5.0, 4.0, 3.0, 3.0, 3.5, 4.5, 2.0, 2.0]
    # Stretches of two: 4.5, 3.0, 4.0, 2.0.
    assert windowed(losses, 4).tolist() == [4.5, 3.0, 4.0, 2.0]
    assert largest_rise(losses, 4) == 1.0
    assert largest_rise([4.0, 3.0, 2.0], 3) == 0.0
    # Later stretches are compared with all before, not with the one before alone.
    assert largest_rise([3.0, 3.4, 3.8], 3) == pytest.approx(0.8)


def test_the_table_and_the_panels_have_a_place_for_each_depth() -> None:
    made = ends(AS_PROMISED, UNIGRAM)
    assert [row[:2] for row in made.rows][:4] == [
        [8, "DeepNorm"],
        [8, "Post-LN"],
        [8, "Pre-LN"],
        [100, "DeepNorm"],
    ]
    assert [row[5] for row in made.rows] == ["yes", "no", "yes"] * 2
    courses, rates = figures(MADE, AS_PROMISED, UNIGRAM)
    assert [one.title for one in courses.panels] == ["8 blocks", "100 blocks"]
    baseline, deepnorm, *_ = courses.panels[0].series
    assert set(baseline.y) == {UNIGRAM}
    assert deepnorm.x == [1.0, 2.0, 3.0, 4.0]
    assert deepnorm.y == pytest.approx([6.4, 6.0, 5.8, 5.6])
    assert [one.label for one in rates.panels[1].series] == ["DeepNorm", "Post-LN", "Pre-LN"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depths": ("100",)}, "depths must be BLOCKS:WIDTH, such as 100:64, got '100'"),
        ({"depths": ("100:63",)}, "the width of 100:63 must be a multiple of heads=2"),
        ({"depths": ("100:0",)}, "the width of 100:0 must be a multiple"),
        ({"depths": ("100:16", "8:16")}, "depths must rise"),
        ({"depths": ("100:16", "100:32")}, "depths must rise, each but once"),
        ({"placements": ("post-ln", "pre-ln")}, "scaled=deepnorm must be among the placements"),
        ({"post": "deepnorm"}, "scaled and post must be two placements"),
        ({"placements": ("deepnorm", "post-ln", "t-fixup")}, "t-fixup is not defined for a deco"),
        ({"rise_nats": 0}, "rise_nats must be positive"),
        ({"updates": 10}, "updates must be at least 20"),
        ({"warmup_updates": 300}, "warmup_updates must lie between 0 and updates=300"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeepConfig(**changes)


def test_text_that_is_not_there_is_told() -> None:
    with pytest.raises(UserError, match="prepare one with `normscope data documents`"):
        DeepConfig(text="nowhere").at(100).base()


def test_the_sizes_that_are_published_hold_a_hundred_blocks_and_a_thousand() -> None:
    assert list(DeepConfig().widths) == [100, 1000]
    assert 100 in SMOKE.widths


def test_small_ones_are_trained_with_the_weights_that_each_source_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_trainings, "run_cells", in_process.run_cells)
    config = replace(SMOKE, depths=("2:8", "12:8"), seeds=1)
    findings, page = run_study(
        STUDY, config, Pieces(tmp_path), command="normscope study deep", scale="smoke"
    )
    folders = sorted((tmp_path / "blocks-12" / "runs").iterdir())
    # Three placements, a seed on one rate and another at the best.
    assert len(folders) == 3 * 2
    for folder in folders:
        settings = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
        assert settings["model"]["initialisation"] == "as-placement"
        assert settings["model"]["blocks"] == 12
    # Xavier's deviation is 1/√8 of a square matrix of width 8, and DeepNorm's (8 · 12)^-1/4 of it.
    own = next(one for one in folders if one.name.startswith("deepnorm"))
    run = load_run_config(RunFolder(own))
    task = task_of(run)
    model: Any = task.build(run, task.open(run).codec)
    spread = np.mean(
        [next(block.sublayers()).f.output.weight.std().item() for block in model.decoder.blocks]
    )
    assert spread == pytest.approx((8 * 12) ** -0.25 / np.sqrt(8), rel=0.1)
    assert [(one["blocks"], one["placement"]) for one in findings.data["trainings"]] == [
        (blocks, name) for blocks in (2, 12) for name in ("deepnorm", "post-ln", "pre-ln")
    ]
    assert len(findings.data["runs"]) == 12
    assert "verdicts mean nothing" in page.read_text(encoding="utf-8")
