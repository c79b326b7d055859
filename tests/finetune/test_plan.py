"""A dry run of a search counts what the search then trains, and leaves nothing behind."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from normscope.finetune import plan as planning
from normscope.finetune.cells import SearchSpace, TuningCell
from normscope.finetune.opened import FineTuningConfig, OpenedSearch
from normscope.finetune.plan import SearchPlan, plan, seconds_of_update
from normscope.finetune.search import SearchOptions, search

pytest.importorskip("transformers", reason="needs Hugging Face transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")

SPACE = SearchSpace(batch_sizes=(8, 12), rates=(1e-3,), epochs=(1, 2))
"""Of 24 rows: 3 and 2 updates an epoch."""
SECONDS = {8: 30.0, 12: 40.0}


def seconds_of(opened: OpenedSearch, rows: int) -> float:
    return SECONDS[rows]


def planned(config: FineTuningConfig, folder: Path, options: SearchOptions) -> SearchPlan:
    return plan(config, folder, options, seconds_of=seconds_of)


@pytest.fixture
def config(run: Path, files: tuple[Path, Path]) -> FineTuningConfig:
    return FineTuningConfig(start=run, train=files[0], dev=files[1], device="cpu")


def everything(folder: Path) -> Counter[str]:
    return Counter(str(one) for one in folder.rglob("*"))


def test_what_is_planned_is_what_is_then_trained(
    config: FineTuningConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "search"
    options = SearchOptions(space=SPACE, seeds=3, processes=1)
    before = planned(config, folder, options)
    search_stage, seeds_stage = before.stages
    assert not folder.exists()
    # 3 + 6 updates of 8 rows, 2 + 4 of 12.
    assert (search_stage.trainings, search_stage.finished) == (4, 0)
    assert search_stage.least == search_stage.most
    assert search_stage.most.updates == 15
    assert search_stage.most.seconds == 9 * 30 + 6 * 40
    # Two more seeds of any of the four settings.
    assert (seeds_stage.trainings, seeds_stage.finished) == (2, 0)
    assert (seeds_stage.least.updates, seeds_stage.most.updates) == (4, 12)
    assert (seeds_stage.least.seconds, seeds_stage.most.seconds) == (4 * 40, 12 * 30)

    written: list[TuningCell] = []
    whole = TuningCell.write

    def noted(cell: TuningCell, *given: object) -> None:
        written.append(cell)
        whole(cell, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(TuningCell, "write", noted)
    found = search(config, folder, options)
    assert len(written) == 4 + 2
    assert sum(cell.updates for cell in written[:4]) == 15
    assert 4 <= sum(cell.updates for cell in written[4:]) <= 12

    held = everything(folder)
    after = planned(config, folder, options)
    assert everything(folder) == held
    assert [one.finished for one in after.stages] == [4, 2]
    assert after.seconds_of == {}
    assert after.lines()[-1] == "every training is finished; nothing was trained"
    assert after.lines()[2].endswith("4 of them finished; nothing is left")

    # With the best setting known, two more seeds of it are all that is left.
    more = planned(config, folder, replace(options, seeds=5))
    best = found.tuned.setting
    updates = 2 * best.epochs * (3 if best.batch_sequences == 8 else 2)
    (_, left) = more.stages
    assert (left.trainings, left.finished) == (4, 2)
    assert left.least == left.most
    assert left.most.updates == updates
    assert list(more.seconds_of) == [best.batch_sequences]


def test_one_setting_is_one_stage(config: FineTuningConfig, tmp_path: Path) -> None:
    one = SearchSpace(batch_sizes=(8,), rates=(1e-3,), epochs=(2,))
    found = planned(config, tmp_path / "none", SearchOptions(space=one, seeds=20))
    (stage,) = found.stages
    assert (stage.trainings, stage.most.updates) == (20, 120)
    assert found.lines()[2:] == [
        "the one setting: 20 trainings; 120 updates, about 1.00 core-hours",
        "in all: 120 updates, about 1.00 core-hours",
        "an estimate, by 30 seconds for an update of 8 rows, which one core took just now; loading "
        "and judging are not in it; nothing was trained",
    ]


def test_a_time_that_hangs_on_the_best_setting_is_told_from_least_to_most(
    config: FineTuningConfig, tmp_path: Path
) -> None:
    lines = planned(config, tmp_path, SearchOptions(space=SPACE, seeds=3)).lines()
    assert "24 rows to train on" in lines[0]
    assert lines[2:5] == [
        "the settings, one seed each: 4 trainings; 15 updates, about 8.5 core-minutes",
        "the best setting, its other seeds: 2 trainings; from 4 updates, about 2.7 core-minutes, "
        "to 12, about 6.0 core-minutes, by which setting is the best",
        "in all: from 19 updates, about 11 core-minutes, to 27, about 14 core-minutes, by which "
        "setting is the best",
    ]


def test_an_update_is_timed_on_a_model_of_its_own_in_one_thread(
    config: FineTuningConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = planning.open_search(config)
    held = {name: one.clone() for name, one in opened.start.encoder.state_dict().items()}
    clock = iter((10.0, 14.0, 20.0, 21.5, 30.0, 99.0))
    monkeypatch.setattr(planning.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(planning, "_LONG_SECONDS", 60.0)
    threads: list[int] = []
    made = opened.data.batch

    def batch(rows: object) -> object:
        threads.append(torch.get_num_threads())
        return made(rows)  # type: ignore[arg-type]

    monkeypatch.setattr(type(opened.data), "batch", lambda self, rows: batch(rows))
    before = torch.get_num_threads()
    assert seconds_of_update(opened, 1000) == 1.5
    assert threads == [1]
    assert torch.get_num_threads() == before
    for name, value in opened.start.encoder.state_dict().items():
        assert torch.equal(value, held[name]), name


def test_a_long_update_is_timed_once(
    config: FineTuningConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = planning.open_search(config)
    clock = iter((0.0, 5.0))
    monkeypatch.setattr(planning.time, "process_time", lambda: next(clock))
    assert seconds_of_update(opened, 4) == 5.0
