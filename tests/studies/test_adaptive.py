"""The study of numbers that move: made-up runs judged, what moves them, and the smallest scale."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import in_process
from normscope.optim import AdaptiveConfig
from normscope.placement import StackShape, registered
from normscope.placement.reading import read
from normscope_studies.adaptive.runs import (
    BEST_FIXED,
    CONTROLLED,
    FAMILIES,
    SCALES,
    AdaptiveRuns,
    AdaptiveStudyConfig,
    Motion,
    arms,
    number_of,
)
from normscope_studies.adaptive.study import STUDY, claims
from normscope_studies.engine import ladders as ladders_module
from normscope_studies.engine.ladders import Ladder, LadderRun, WarmupPair
from normscope_studies.engine.models import trial
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study

SMOKE: AdaptiveStudyConfig = SCALES["smoke"].config
CONFIG = replace(SMOKE, scheduled=("pre-to-post", "branch-norm"), best_fixed=("rezero",), warmup_updates=3)
JITTER = (0.0, 0.02, -0.01)


def run_of(nats: float) -> LadderRun:
    cell: Any = SimpleNamespace(name="made up")
    return LadderRun(cell=cell, final_nats=nats, first_nats=6.0, finite=True)


def ladder_of(warmup: int, mean: float) -> Ladder:
    # Another order of the seeds, so that pairs differ.
    finals = [run_of(mean + jitter / (1 + warmup)) for jitter in JITTER]
    return Ladder(warmup_updates=warmup, peak_lrs=(1e-3, 4e-3), runs=[[run_of(5.9), finals[0]]], again={4e-3: finals})


def runs_of(task: str, **means: tuple[float, float]) -> AdaptiveRuns:
    """means: by placement and drive, the last loss without warm-up and with."""
    pairs: Any = {}
    for name, (without, warm) in means.items():
        placement, drive = name.replace("_", "-").rsplit("--", 1)
        pairs[placement, drive] = WarmupPair(without=ladder_of(0, without), warm=ladder_of(3, warm))
    return AdaptiveRuns(task=task, unigram_nats=5.8, pairs=pairs)


FIXED = {"pre_ln__fixed": (4.2, 4.1), "post_ln__fixed": (5.5, 4.0), "rezero__fixed": (3.9, 4.3)}


def test_every_question_is_judged_for_every_number_that_moves_and_every_task() -> None:
    one = runs_of(
        "language-model",
        **FIXED,
        pre_to_post__schedule=(3.95, 4.6),
        branch_norm__schedule=(3.7, 3.65),
        pre_to_post__controller=(4.05, 3.97),
    )
    other = runs_of(
        "translation",
        **FIXED,
        pre_to_post__schedule=(4.5, 4.05),
        branch_norm__schedule=(4.5, 4.55),
        pre_to_post__controller=(3.5, 3.2),
    )
    assert one.kinds[0] == ("branch-norm", "schedule")
    assert (one.pre.mean_nats, one.best_fixed[0]) == (pytest.approx(4.1, abs=0.01), "rezero")
    said = {claim.name: (claim.verdict, claim.conditions) for claim in claims(CONFIG, [one, other])}
    assert said["below both ends"][1] == (
        "Pre-LN to Post-LN, scheduled (language model), BranchNorm, scheduled (language model), Pre-LN to Post-LN, "
        "controlled (language model) and Pre-LN to Post-LN, controlled (translation); "
        "not Pre-LN to Post-LN, scheduled (translation) and BranchNorm, scheduled (translation)"
    )
    assert said["below the best fixed placement"][1].endswith(
        "; but BranchNorm, scheduled (language model) and Pre-LN to Post-LN, controlled (translation)"
    )
    # needs_nats is 0.1: 0.05 and what is below 0 are less, 0.45 and 0.3 are more, and 0.08 may be either.
    assert said["without warm-up"][1] == (
        "Pre-LN to Post-LN, scheduled (language model), BranchNorm, scheduled (language model) and BranchNorm, "
        "scheduled (translation); not Pre-LN to Post-LN, scheduled (translation) and Pre-LN to Post-LN, controlled "
        "(translation); undecided: Pre-LN to Post-LN, controlled (language model)"
    )
    assert said["the controller beside the schedule"] == (
        "undecided",
        "Pre-LN to Post-LN (translation); undecided: Pre-LN to Post-LN (language model)",
    )
    assert said["Post-LN needs its warm-up"] == ("reproduced", "")


def test_a_course_knows_when_its_number_was_where() -> None:
    seen = Motion(values=[0.0, 0.25, 0.25, 0.5, 0.75], changes=[0.3, 0.05, 0.1])
    assert (seen.first_at(0.25), seen.first_at(0.5), seen.first_at(1.0)) == (2, 4, None)
    assert (seen.end, seen.median_change) == (0.75, 0.1)


def test_the_families_are_all_that_have_a_number_that_moves() -> None:
    shape = StackShape(kind="decoder", width=8, decoder_blocks=1)
    defined = {name: one for name, one in registered().items() if "decoder-only" in one.models}
    moving = {name for name, one in defined.items() if read(one(shape)).schedules}
    assert set(FAMILIES) == moving
    assert set(CONTROLLED) <= moving
    assert not set(BEST_FIXED) & moving
    assert [number_of(name) for name in ("branch-norm", "post-to-pre")] == ["branch_scale", "pre"]


@pytest.mark.parametrize("task", ["language-model", "translation"])
def test_an_arm_is_moved_as_it_says_and_has_a_folder_of_its_own(task: str, tmp_path: Path) -> None:
    asked = {
        "fixed": AdaptiveConfig(),
        "schedule": AdaptiveConfig(over=2),
        "controller": AdaptiveConfig(over=2, controller="output-change", largest_change=0.1, measure_every=1),
    }
    folders = set()
    made = arms(SMOKE, trial(SMOKE, task).base, tmp_path)
    for drive, adaptive in asked.items():
        placement = "rezero" if drive == "fixed" else "pre-to-post"
        for cell in made[placement, drive].cells(2, SMOKE.peak_lrs, seeds=2):  # type: ignore[index]
            assert cell.config.adaptive == adaptive
            assert cell.config.schedule.warmup_updates == 2
            folders.add(cell.folder.path)
    assert len(folders) == 3 * 2 * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheduled": ()}, "scheduled: give one or more different values"),
        ({"tasks": ("speech",)}, "speech is not one; choose from language-model, translation"),
        ({"peak_lrs": (2e-3, 1e-3)}, "peak_lrs must be positive and rise"),
        ({"controlled": ("admin-constant", "t-fixup")}, "t-fixup is not defined for every kind of model"),
        ({"measure_every": 0}, "measure_every must be positive"),
        ({"largest_change": 0.0}, "largest_change must be positive"),
        ({"warmup_updates": 500}, "warmup_updates must lie between"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdaptiveStudyConfig(**changes)


def test_the_smallest_scale_trains_every_arm_and_trains_none_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladders_module, "run_cells", in_process.run_cells)
    config = replace(SMOKE, best_fixed=(), peak_lrs=(1e-3,))
    findings, page = run_study(STUDY, config, Pieces(tmp_path), command="normscope study adaptive", scale="smoke")
    runs = sorted(tmp_path.glob("language-model/*/runs/*/metrics.jsonl"))
    assert len(runs) == 4 * 2 * 2
    assert len(findings.data["runs"]) == len(runs)
    assert "How the controllers moved their numbers" in page.read_text(encoding="utf-8")
    times = [run.stat().st_mtime_ns for run in runs]
    again, _ = run_study(STUDY, config, Pieces(tmp_path), command="normscope study adaptive", scale="smoke")
    assert [run.stat().st_mtime_ns for run in runs] == times
    assert again.data == findings.data
    scheduled = next(arm for arm in findings.data["trials"]["language-model"]["arms"] if arm["drive"] == "schedule")
    assert scheduled["less_pre_ln_nats"]["seeds"] == 2
