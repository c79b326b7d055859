"""What a study would train is counted before anything is trained."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import in_process
from normscope.data import opening
from normscope.errors import UserError
from normscope.tasks.registry import task_of
from normscope.tasks.translation import TranslationRunConfig
from normscope_studies.engine import trainings
from normscope_studies.engine.discovery import studies
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.planning import (
    Corpora,
    PlannedRuns,
    StudyPlan,
    core_flops,
    plan_lines,
    tokens_per_update,
)
from normscope_studies.engine.study import run_study
from normscope_studies.figure_5.config import SCALES
from normscope_studies.figure_5.pretraining import cells_of
from normscope_studies.figure_5.study import STUDY
from normscope_studies.figure_6 import SCALES as FIGURE_6, STUDY as SIXTH

SMOKE = replace(SCALES["smoke"], tasks=())


def test_updates_tokens_and_operations_are_those_of_the_trainings(tmp_path: Path) -> None:
    (found,) = STUDY.plan(SMOKE, tmp_path).stages
    config = cells_of(SMOKE, Pieces(tmp_path))[0].config
    assert (found.runs, found.over, found.updates) == (4, 0, 4 * SMOKE.updates)
    task = task_of(config)
    corpus = task.open(config)
    objective = task.objective(config, corpus, torch.device("cpu"))
    batch = objective.micro_batch(0)
    assert found.tokens == found.updates * len(batch.tokens_N)
    # The whole batch, counted by torch's own counter; products that it does not know are few here.
    model = task.build(config, corpus.codec)
    with FlopCounterMode(display=False) as counter:
        loss, _ = objective.loss_sums(model, batch)
        loss.backward()
    assert found.flops == pytest.approx(found.updates * counter.get_total_flops(), rel=0.2)
    assert not any(tmp_path.iterdir())


def test_accumulated_batches_count_each(tmp_path: Path) -> None:
    config = SMOKE.training()
    corpus = task_of(config).open(config)
    one = tokens_per_update(config, corpus)
    three = tokens_per_update(replace(SMOKE, accumulation=3).training(), corpus)
    assert 2 * one < three < 4 * one


@pytest.mark.parametrize("name", ["deep", "amplification-trainings", "converged"])
def test_a_plan_opens_no_corpus_for_each_of_its_models(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study may open its corpus itself once more, before it plans what is trained on it."""
    opened = []
    for corpus in ("toy_corpus", "toy_documents"):
        whole = getattr(opening, corpus)
        monkeypatch.setattr(opening, corpus, counted(whole, opened))
    study = studies()[name].load()
    (first, *_) = study.plan(study.scales["smoke"], tmp_path / "out").stages
    assert first.runs > 1
    assert 1 <= len(opened) <= 2


def counted(function: Callable[..., Any], calls: list[tuple[object, ...]]) -> Callable[..., Any]:
    def called(*given: object) -> Any:
        calls.append(given)
        return function(*given)

    return called


def test_trainings_on_other_data_open_it_too() -> None:
    corpora, config = Corpora(), TranslationRunConfig()
    config = replace(config, data=replace(config.data, toy_pairs=100))
    other = replace(config, data=replace(config.data, toy_pairs=50))
    whole = corpora.of(config)
    assert corpora.of(replace(config, seed=config.seed + 1)) is whole
    assert len(corpora.of(other).splits["train"]) == 50
    assert len(whole.splits["train"]) != 50


def test_what_is_trained_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    small = replace(SMOKE, updates=4, validations=1, warmup_updates=1)
    run_study(STUDY, small, Pieces(tmp_path), command="test")
    (found,) = STUDY.plan(small, tmp_path).stages
    assert (found.runs, found.over, found.updates, found.flops) == (4, 4, 0, 0)
    (more,) = STUDY.plan(replace(small, seeds=2), tmp_path).stages
    assert (more.runs, more.over, more.updates) == (8, 4, 16)


def test_a_study_without_a_plan_of_its_own_shows_its_first_trainings(tmp_path: Path) -> None:
    plan = SIXTH.plan(FIGURE_6["smoke"], tmp_path / "figure-6")
    assert [(one.runs, one.over) for one in plan.stages] == [(5, 0)]
    assert plan.ends
    assert not any(tmp_path.iterdir())


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("name", [name for name in studies() if name not in ("paper", "depth")])
def test_a_plan_writes_and_trains_nothing(name: str, tmp_path: Path) -> None:
    study = studies()[name].load()
    try:
        lines = plan_lines(
            study.plan(study.scales["smoke"], tmp_path / "out"), speed_of=lambda config: 1e9
        )
    except UserError:  # a device or a library that is not here
        return
    assert lines
    assert not (tmp_path / "out").exists()


def runs(**changes: object) -> PlannedRuns:
    given = {"stage": "s", "runs": 3, "over": 0, "updates": 30, "tokens": 6e6, "flops": 3.6e15}
    return PlannedRuns(**{**given, "config": SMOKE.training(), **changes})  # type: ignore[arg-type]


def test_hours_are_operations_over_the_speed_and_said_to_be_an_estimate() -> None:
    plan = StudyPlan(stages=[runs(), runs(stage="t", over=1, updates=20, flops=1.8e15)])
    said = plan_lines(plan, speed_of=lambda config: 50e9)
    assert said[0] == (
        "s: 3 trainings, 30 updates, 6.00e6 tokens, 6.00e8 operations a token; 3.60e15 operations, "
        "about 20.0 core-hours"
    )
    assert "1 of them finished" in said[1]
    assert said[2] == "in all: 50 updates, 5.40e15 operations, about 30.0 core-hours"
    assert said[-1].startswith("an estimate, by 50 billion operations a second")
    assert said[-1].endswith("nothing was trained")


def test_less_than_an_hour_is_told_in_minutes_and_nothing_as_nothing() -> None:
    stages = [
        runs(stage="minutes", flops=1.8e12),
        runs(stage="seconds", flops=3e10),
        runs(stage="over", over=3, updates=0, tokens=0, flops=0),
    ]
    said = plan_lines(StudyPlan(stages=stages), speed_of=lambda config: 1e9)
    assert said[0].endswith("; 1.80e12 operations, about 30 core-minutes")
    assert said[1].endswith("; 3.00e10 operations, less than a minute of one core")
    assert said[2] == "over: 3 trainings, 3 of them finished, 0 updates, 0 tokens; nothing is left"


def test_hours_of_an_accelerator_are_by_a_stated_speed() -> None:
    config = replace(SMOKE, device="cuda").training()
    said = plan_lines(StudyPlan(stages=[runs(flops=3.6e17, config=config)], ends="the rest"))
    assert "about 1.00 accelerator-hours" in said[0]
    assert said[2] == "not counted: the rest"
    assert "stated and not measured" in said[3]


def test_a_plan_without_trainings_says_so() -> None:
    assert plan_lines(StudyPlan(stages=[], ends="measurements")) == [
        "Nothing to train is known beforehand: measurements."
    ]


def test_the_speed_of_a_core_is_what_a_product_takes_at_most() -> None:
    """A training is slower than a large product alone, and not a thousand times."""
    config = replace(SCALES["cpu"], corpus="toy", blocks=2).training()
    found = core_flops(config)
    assert 1e8 < found < 1e13


def test_the_speed_of_a_core_takes_one_block_however_deep_the_model_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand wide ones with their optimiser would not fit into the memory of a machine."""
    config = replace(SCALES["cpu"], corpus="toy", blocks=1000).training()
    task = type(task_of(config))
    build, built = task.build, []

    def seen(self: Any, config: Any, codec: Any) -> Any:
        built.append(config.model.blocks)
        return build(self, config, codec)

    monkeypatch.setattr(task, "build", seen)
    assert core_flops(config) > 1e8
    assert built == [1]


LADDERS = {
    # placements x warm-ups x rates, then one seed that judges, at one rate of each
    "deep": [(6, 24), (6, 24)],
    # two depths: 2 pairs x 1 rate of 10 updates, then the best of 2 placements for 20
    "stable": [(2, 20), (2, 40), (2, 20), (2, 40)],
    # 3 pairs x 2 rates of 10 updates, then the best of 2 placements with 2 seeds for 20
    "converged": [(6, 60), (4, 80)],
}


@pytest.mark.parametrize("name", LADDERS)
def test_what_follows_a_ladder_is_counted_too(name: str, tmp_path: Path) -> None:
    study = studies()[name].load()
    plan = study.plan(study.scales["smoke"], tmp_path)
    assert [(one.runs, one.updates) for one in plan.stages] == LADDERS[name]
    assert all(one.flops > 0 for one in plan.stages)
    assert "trainings" not in plan.ends


def test_the_trainings_at_multiples_of_a_ladders_best_rate_are_counted(tmp_path: Path) -> None:
    config = replace(FIGURE_6["smoke"], adam_ladder=(1e-3, 2e-3, 4e-3), peak_lr=1.0, small_lr=0.1)
    ladder, arms = SIXTH.plan(config, tmp_path / "figure-6").stages
    assert (ladder.stage, ladder.runs) == ("the ladder", 3)
    assert (arms.stage, arms.runs) == ("the trainings", 5)
    assert arms.updates > ladder.updates


def test_what_a_finished_ladder_chose_is_what_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs at its best rate are seen to be finished, whichever rate that is."""
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    study = studies()["converged"].load()
    config = replace(study.scales["smoke"], seeds=1)
    run_study(study, config, Pieces(tmp_path), command="test")
    again = study.plan(config, tmp_path)
    assert [(one.runs, one.over) for one in again.stages] == [(6, 6), (2, 2)]
    more = study.plan(replace(config, seeds=2), tmp_path)
    assert [(one.runs, one.over) for one in more.stages] == [(6, 6), (4, 2)]
