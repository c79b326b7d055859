"""A search in its folder: what is kept, what is made again, what is refused, and its report."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import normscope
from labelled_toy import lines, write
from normscope.api.finetuning import default_folder
from normscope.engines import slurm
from normscope.engines.choosing import SlurmSettings
from normscope.engines.local import OnThisMachine
from normscope.engines.seam import Future, Job
from normscope.errors import UserError
from normscope.finetune import pool
from normscope.finetune.cells import SearchSpace
from normscope.finetune.opened import FineTuningConfig, OpenedSearch, open_search
from normscope.finetune.search import FoundSetting, SearchOptions, search

pytest.importorskip("transformers", reason="needs Hugging Face transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")

SPACE = SearchSpace(batch_sizes=(8,), rates=(1e-4, 1e-3), epochs=(1,))
Files = tuple[Path, Path]


def config(run: Path, files: Files, **changes: Any) -> FineTuningConfig:
    given = {"start": run, "train": files[0], "dev": files[1], "device": "cpu"}
    return FineTuningConfig(**{**given, **changes})


def searched(run: Path, files: Files, out: Path, **changes: Any) -> FoundSetting:
    options = {"space": SPACE, "seeds": 3, "processes": 1} | changes
    return search(config(run, files), out, SearchOptions(**options))


def cells(out: Path) -> dict[str, int]:
    """Names of finished cells, with when each was written."""
    return {file.name: file.stat().st_mtime_ns for file in (out / "cells").glob("*.json")}


def scores(found: FoundSetting) -> list[Any]:
    """Everything but times."""
    read = [cell.scores() for cell in (*found.searched, *found.best)]
    return [(one.accuracy, one.nll_nats, one.predicted, one.losses) for one in read if one]


def test_a_search_trains_each_setting_once_and_the_best_with_every_seed(
    run: Path, files: Files, tmp_path: Path
) -> None:
    seen = []
    found = searched(run, files, tmp_path / "out", watch=lambda *progress: seen.append(progress))
    best = found.tuned.setting
    assert len(cells(tmp_path / "out")) == 2 + 3 - 1
    assert [cell.seed for cell in found.best] == [1, 2, 3]
    assert {cell.setting for cell in found.best} == {best}
    accuracies = {cell.setting: cell.scores().accuracy for cell in found.searched}
    assert accuracies[best] == max(accuracies.values())
    # 24 rows in batches of 8, one epoch; the best setting's first seed is there already.
    stages = [(stage, done, total) for stage, done, total in seen if done == total]
    assert stages[-1] == ("updates of the 3 seeds", 9, 9)
    assert stages[0] == ("updates of the search of 2 settings", 6, 6)
    assert min(done for stage, done, _ in seen if stage == stages[-1][0]) > 3
    assert {len(cell.scores().losses) for cell in found.best} == {3}


def test_seeds_differ_and_the_same_seed_gives_the_same_numbers(
    run: Path, files: Files, tmp_path: Path
) -> None:
    one = searched(run, files, tmp_path / "one", seeds=2)
    again = searched(run, files, tmp_path / "again", seeds=2)
    assert scores(one) == scores(again)
    first, second = (cell.scores() for cell in one.best)
    assert first.losses != second.losses


def test_what_is_finished_is_not_trained_again_and_more_seeds_train_the_new_ones(
    run: Path, files: Files, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    before = scores(searched(run, files, out, seeds=2))
    there = cells(out)
    assert scores(searched(run, files, out, seeds=2)) == before
    assert cells(out) == there
    searched(run, files, out, seeds=3)
    assert {name: when for name, when in cells(out).items() if name in there} == there
    assert len(cells(out)) == len(there) + 1


def test_a_search_that_was_stopped_goes_on_with_the_cell_that_is_missing(
    run: Path, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = scores(searched(run, files, tmp_path / "whole"))
    out, trained = tmp_path / "out", OpenedSearch.train

    def stopped(
        self: OpenedSearch, cell: Any, after_update: Callable[[], None], *others: Any
    ) -> Any:
        if len(cells(out)) == 2:
            # In the middle of a cell, behind its first update.
            return trained(self, cell, lambda: (_ for _ in ()).throw(KeyboardInterrupt), *others)
        return trained(self, cell, after_update, *others)

    with monkeypatch.context() as patch:
        patch.setattr(OpenedSearch, "train", stopped)
        with pytest.raises(KeyboardInterrupt):
            searched(run, files, out)
    there = cells(out)
    assert len(there) == 2
    assert not (out / "report.html").exists()
    assert not list(out.rglob(".unfinished-*"))
    assert scores(searched(run, files, out)) == whole
    assert {name: when for name, when in cells(out).items() if name in there} == there


@pytest.mark.thorough
def test_processes_side_by_side_give_the_same_numbers(
    run: Path, files: Files, tmp_path: Path
) -> None:
    one = scores(searched(run, files, tmp_path / "one", seeds=4))
    assert scores(searched(run, files, tmp_path / "two", seeds=4, processes=2)) == one


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_jobs_in_a_queue_give_the_same_numbers(
    run: Path, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setattr(slurm, "_LOOK_SECONDS", 0.05)
    one = scores(searched(run, files, tmp_path / "one", seeds=2))
    there = searched(
        run, files, tmp_path / "two", seeds=2, engine=SlurmSettings(cluster="local"), processes=0
    )
    assert scores(there) == one
    assert len(list((tmp_path / "two" / "slurm").glob("*.code.json"))) == 3


def test_a_killed_training_is_told_with_what_to_do_and_the_others_are_kept(
    run: Path, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, started = tmp_path / "out", OnThisMachine.start
    first = f"{next(SPACE.settings()).name}_seed-1"

    def killed(self: OnThisMachine, job: Job) -> Future:
        if job.name != first:
            return started(self, job)
        words = ["-c", "import os, signal; print('so far'); os.kill(os.getpid(), signal.SIGKILL)"]
        return started(self, replace(job, words=["-u", *words]))

    with monkeypatch.context() as patch:
        patch.setattr(OnThisMachine, "start", killed)
        with pytest.raises(UserError) as refused:
            searched(run, files, out, processes=2)
    said = str(refused.value)
    assert said.startswith(f"{first}: killed by SIGKILL; the last it said: so far; perhaps for")
    assert f"(log: {out / 'logs' / first}.txt)" in said
    assert "what is finished is kept: the same command trains the rest" in said
    there = cells(out)
    assert len(there) == 1
    whole = scores(searched(run, files, tmp_path / "whole"))
    assert scores(searched(run, files, out)) == whole
    assert {name: when for name, when in cells(out).items() if name in there} == there


def test_what_a_driver_that_was_killed_did_not_take_in_is_not_trained_again(
    run: Path, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, kept = tmp_path / "out", pool._Training.is_kept
    with monkeypatch.context() as patch:
        patch.setattr(pool._Training, "is_kept", lambda training: False)
        with pytest.raises(UserError, match="nothing was left in"):
            searched(run, files, out, processes=2)
    assert not cells(out)
    left = list((out / "trainings").glob("*/cell.json"))
    assert len(left) == 2
    found: list[str] = []

    def noted(training: pool._Training) -> bool:
        is_kept = kept(training)
        if is_kept and not training.message:
            found.append(training.cell.name)
        return is_kept

    monkeypatch.setattr(pool._Training, "is_kept", noted)
    searched(run, files, out, processes=2, seeds=1)
    assert sorted(found) == sorted(file.parent.name for file in left)
    assert not list((out / "trainings").iterdir())


def test_other_rows_on_another_machine_are_named(run: Path, files: Files, tmp_path: Path) -> None:
    """The same path, and another file there."""
    opened = open_search(config(run, files))
    (cell,) = opened.cells([next(SPACE.settings())], [1], tmp_path / "out")
    training = pool._Training(opened.config, cell)
    job = training.next_job()
    files[0].write_text(files[1].read_text())
    done = subprocess.run(
        [sys.executable, *job.words],
        input=job.configuration,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert re.search(r"error: on \S+, data sha256 is '\w+', and '\w+' where the", done.stderr)
    assert not training.is_kept()


def test_a_log_of_the_user_s_is_not_added_to(run: Path, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "out"
    mine = out / "logs" / f"{next(SPACE.settings()).name}_seed-1.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(UserError, match="stays"):
        searched(run, files, out, processes=2)
    assert mine.read_text() == "mine"


def test_the_report_draws_the_majority_class_and_holds_every_number(
    run: Path, files: Files, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    found = searched(run, files, out, command="normscope finetune x")
    data = json.loads((out / "results.json").read_text(encoding="utf-8"))
    html = (out / "report.html").read_text(encoding="utf-8")
    explored = json.loads(re.search(r'id="explored">(.*?)</script>', html)[1])  # type: ignore[index]
    # Eight of twelve rows to judge have the same sentence twice.
    assert data["summary"]["majority"] == pytest.approx(8 / 12)
    lines = [(c["title"], line) for c in explored["charts"] for line in c["lines"]]
    arms = [arm["label"] for arm in explored["arms"]]
    majority = {
        title: {value / 10 ** line.get("digits", 0) for value in line["rows"][0]}
        for title, line in lines
        if arms[line["arm"]] == "majority class"
    }
    assert majority == {"Settings, first seed": {0.6667}, "Best setting, every seed": {0.6667}}
    accuracies = [cell.scores().accuracy for cell in found.best]
    assert [cell["scores"]["accuracy"] for cell in data["best"]] == accuracies
    assert data["start"]["words"] == "placement b2t, update 2"
    assert (data["labels"], data["majority_label"]) == (["other", "same"], "same")
    assert "normscope finetune x" in html
    assert f"trained on {tmp_path.name}/train.tsv and judged on" in " ".join(html.split())
    for accuracy in accuracies:
        assert f"{accuracy:.4f}" in html
    said = " ".join(found.lines())
    assert f"{found.tuned.accuracy.mean:.4f}" in said
    assert "majority class 0.6667" in said


def test_a_search_without_a_choice_has_no_picture_of_settings(
    run: Path, files: Files, tmp_path: Path
) -> None:
    space = SearchSpace(batch_sizes=(8,), rates=(1e-3,), epochs=(1,))
    found = searched(run, files, tmp_path / "out", space=space, seeds=1)
    html = found.report.read_text(encoding="utf-8")
    assert "Settings, first seed" not in html
    assert "Every setting that was tried" not in html
    assert "undecided" in " ".join(found.lines())  # one seed has no interval


def test_another_start_or_other_rows_in_the_same_folder_are_refused(
    run: Path, files: Files, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    searched(run, files, out, seeds=1)
    there = cells(out)
    options = SearchOptions(space=SPACE, seeds=1, processes=1)
    for changes, said in (
        ({"which": "1"}, "weights sha256"),
        ({"dev": files[0]}, "data sha256"),
        ({"sequence_length": 16}, "sequence length is 40, and 16 is asked for"),
        ({"dropout": 0.2}, "dropout is 0.1, and 0.2 is asked for"),
        ({"warmup_share": 0.2}, "warmup share is 0.1, and 0.2 is asked for"),
    ):
        with pytest.raises(UserError, match=f"is of another search .*{said}"):
            search(config(run, files, **changes), out, options)
    assert cells(out) == there


def test_a_report_of_another_s_is_not_written_over(run: Path, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("mine")
    with pytest.raises(UserError, match="was not written by NormScope"):
        searched(run, files, out)
    assert not cells(out)


def test_single_sentences_are_told_apart_too(run: Path, tmp_path: Path) -> None:
    rows = [
        ("1" if row % 2 else "0", f"the dog sees the {'man' if row % 2 else 'woman'} .")
        for row in range(12)
    ]
    train = write(tmp_path / "train.tsv", rows, "label", "sentence")
    dev = write(tmp_path / "dev.tsv", rows[:6], "label", "sentence")
    found = searched(run, (train, dev), tmp_path / "out", seeds=1)
    assert {len(set(row.tolist())) for row in found.opened.data.train.segments_T} == {1}
    assert 0 <= found.tuned.accuracy.mean <= 1


def test_a_run_of_another_task_is_refused(files: Files, tmp_path: Path) -> None:
    from normscope.runs.run import train_run
    from tiny import tiny

    train_run(tiny("train.duration=1"), tmp_path / "translation")
    with pytest.raises(UserError, match="a run of task translation; this needs one of task masked"):
        searched(tmp_path / "translation", files, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_a_search_learns_is_learned(run: Path, tmp_path: Path) -> None:
    """A word tells the label: above the majority class by both intervals, as no lucky seed is."""

    def rows(count: int, split: str) -> list[tuple[str, ...]]:
        english = [first for _, first, _ in lines(count, split=split)]
        return [
            ("yes" if row % 3 else "no", f"{'yes' if row % 3 else 'today'} {sentence}")
            for row, sentence in enumerate(english)
        ]

    train = write(tmp_path / "train.tsv", rows(240, "train"), "label", "sentence")
    dev = write(tmp_path / "dev.tsv", rows(60, "valid"), "label", "sentence")
    space = SearchSpace(batch_sizes=(8,), rates=(5e-3,), epochs=(4,))
    found = searched(run, (train, dev), tmp_path / "out", space=space)
    assert found.tuned.accuracy.mean > 0.95
    assert found.tuned.beats_majority is True


def test_python_offers_the_same(run: Path, files: Files, tmp_path: Path) -> None:
    found = normscope.finetune(
        run,
        *files,
        search="none",
        batch_sizes=[8],
        rates=[1e-3],
        epochs=[1],
        seeds=2,
        device="cpu",
        out=tmp_path / "out",
    )
    assert [row["seed"] for row in found.table] == [1, 2]
    assert found.summary.accuracy.mean == pytest.approx(
        sum(row["accuracy"] for row in found.table) / 2
    )
    assert "majority class 0.6667" in str(found)
    assert found.report == tmp_path / "out" / "report.html"
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(normscope.UserError, match="must be one of paper, small, none"):
        normscope.finetune(run, *files, search="large")


def test_tasks_whose_files_have_one_name_lie_in_folders_of_their_own(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "bert"
    found = [default_folder(run, tmp_path / task / "train.tsv.gz") for task in ("mrpc", "rte")]
    assert found == [run.with_name(f"bert-finetune-{task}-train") for task in ("mrpc", "rte")]
