"""`normscope tune` killed at random moments, alone or with its trials, goes on to the same study and the same bytes."""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import forked
from normscope.processes.surroundings import LOCK, is_held
from tiny import finish, leftovers, options, result

pytestmark = pytest.mark.thorough

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")

TRIALS, UPDATES, KILLS = 5, 6, 2
WORDS = (
    "tune",
    *("--trials", str(TRIALS), "--peak-lr", "3e-4:3e-2", "--warmup-updates", "2", "--processes", "2"),
    *options(f"train.duration={UPDATES}", "train.validate_every=3", "train.checkpoint_every=3"),
)


def test_the_study_is_that_of_a_command_left_alone(tmp_path: Path) -> None:
    code, _, err = finish(forked.start(*WORDS, "--out", "whole", cwd=tmp_path))
    assert code == 0, err
    whole, folder, dice = tmp_path / "whole", tmp_path / "killed", random.Random(5)
    kills = 0
    # How far the command is, by the lines that its searches and trials have written; at the last it writes the report.
    for number, goal in enumerate(sorted(dice.sample(range(1, lines(whole)), KILLS))):
        process = forked.start(*WORDS, "--out", "killed", cwd=tmp_path)
        while process.poll() is None and lines(folder) < goal:
            time.sleep(0.002)
        time.sleep(dice.uniform(0.0, 0.05))
        if process.poll() is None:
            process.kill()
            assert finish(process)[0] == -signal.SIGKILL
            kills += 1
        if number % 2:
            kill_trials(folder)
    assert kills >= 1
    code, _, err = finish(forked.start(*WORDS, "--out", "killed", cwd=tmp_path))
    assert code == 0, err
    assert study(folder) == study(whole)
    assert len(study(folder)) == TRIALS
    names = [run.name for run in runs(whole)]
    assert [run.name for run in runs(folder)] == names
    assert len(names) == TRIALS
    for name in names:
        assert result(folder / "runs" / name, UPDATES) == result(whole / "runs" / name, UPDATES)
    assert reported(folder) == reported(whole)
    assert not leftovers(folder)


def runs(folder: Path) -> list[Path]:
    return sorted(folder.glob("runs/*"))


def lines(folder: Path) -> int:
    found = 0
    for file in (*folder.glob("journals/*.jsonl"), *folder.glob("runs/*/metrics.jsonl")):
        with suppress(FileNotFoundError):
            found += file.read_bytes().count(b"\n")
    return found


def kill_trials(folder: Path) -> None:
    """As the system does where memory runs out: a run's lock says who trains it."""
    for run in filter(is_held, runs(folder)):
        with suppress(ValueError, KeyError, ProcessLookupError):  # it has just begun, or just ended
            os.kill(json.loads((run / LOCK).read_text())["pid"], signal.SIGKILL)


def study(folder: Path) -> list[tuple[Any, ...]]:
    """Number, values, loss and state of every trial, as Optuna reads them from the journal."""
    (journal,) = folder.glob("journals/*.jsonl")
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
    (name,) = optuna.get_all_study_names(storage)
    trials: Iterator[Any] = iter(optuna.load_study(study_name=name, storage=storage).trials)
    return [(trial.number, trial.params, trial.value, trial.state) for trial in trials]


def reported(folder: Path) -> dict[str, Any]:
    """Without when, and by how many commands."""
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return {key: value for key, value in found.items() if key not in ("created", "commands")}
