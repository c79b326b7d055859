"""A signal in a validation is answered at its next batch, or step of a search; whoever goes on does
all of that validation first, and comes to the same.

How soon it is answered is counted in units of work.
"""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from normscope.decode import search
from normscope.runs import run
from normscope.tasks.translation import TranslationObjective
from normscope.train import Interrupted, RunFolder
from tiny import SHORT, result, steps, tiny

MANY_BATCHES = "data.max_tokens=64"
BLEU = ("translation.bleu_sentences=8", "translation.bleu_beam=2")


class Counted:
    """Calls of a function that counts as a unit of work, of which one sends SIGTERM."""

    def __init__(self, function: Callable[..., Any], sends_at: int) -> None:
        self.function = function
        self.sends_at = sends_at
        self.calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == self.sends_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.function(*arguments)


def counted_batches(monkeypatch: pytest.MonkeyPatch, sends_at: int) -> Counted:
    """Counts the batches of validations, which alone see a model that does not train."""
    plain = TranslationObjective.loss_sums
    counted = Counted(plain, sends_at)

    def loss_sums(self: TranslationObjective, model: nn.Module, batch: Any) -> Any:
        return plain(self, model, batch) if model.training else counted(self, model, batch)

    monkeypatch.setattr(TranslationObjective, "loss_sums", loss_sums)
    return counted


def checkpoints(folder: Path) -> dict[str, bytes]:
    files = (folder / "checkpoints").rglob("*")
    return {str(one.relative_to(folder)): one.read_bytes() for one in files if one.is_file()}


def validations(folder: Path) -> list[int]:
    return [e["update"] for e in RunFolder(folder).events() if e["event"] == "validation"]


@pytest.mark.parametrize(("batch", "update"), [(2, 5), (1, 5)])
def test_a_validation_is_given_up_at_its_next_batch_and_done_when_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, update: int
) -> None:
    run.train_run(tiny(*SHORT, MANY_BATCHES), whole := tmp_path / "whole")
    with monkeypatch.context() as patch:
        counted = counted_batches(patch, sends_at=batch)
        with pytest.raises(Interrupted) as stop:
            run.train_run(tiny(*SHORT, MANY_BATCHES), folder := tmp_path / "run")
    assert (stop.value.exit_code, str(stop.value)) == (
        143,
        f"stopped by SIGTERM after update {update}; saved",
    )
    assert counted.calls == batch
    assert steps(folder) == [4, update]
    assert validations(folder) == []
    run.train_run(tiny(*SHORT, MANY_BATCHES), folder)
    assert result(folder, 12) == result(whole, 12)
    assert checkpoints(folder) == checkpoints(whole)


def test_the_validation_after_the_last_update_is_given_up_too(
    tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(event: dict[str, object]) -> None:
        if event["event"] == "update" and event["update"] == 12:
            os.kill(os.getpid(), signal.SIGTERM)

    folder = tmp_path / "run"
    with pytest.raises(Interrupted, match="after update 12; saved"):
        run.train_run(tiny(*SHORT), folder, listeners=[interrupt])
    assert validations(folder) == [5, 10]
    with monkeypatch.context() as patch:  # a second time, in the same validation
        counted_batches(patch, sends_at=1)
        with pytest.raises(Interrupted, match="after update 12; saved"):
            run.train_run(tiny(*SHORT), folder)
    assert validations(folder) == [5, 10]
    run.train_run(tiny(*SHORT), folder)
    assert result(folder, 12) == result(short, 12)
    assert checkpoints(folder) == checkpoints(short)


def test_a_longer_run_goes_on_from_an_end_that_was_not_validated(
    tmp_path: Path, short: Path
) -> None:
    def interrupt(event: dict[str, object]) -> None:
        if event["event"] == "update" and event["update"] == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        run.train_run(tiny(*SHORT, "train.duration=7"), folder, listeners=[interrupt])
    run.train_run(tiny(*SHORT), folder)
    assert validations(folder) == [5, 10, 12]


def test_a_search_for_bleu_is_given_up_at_its_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.train_run(tiny(*SHORT, *BLEU), whole := tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(search, "_advance", counted := Counted(search._advance, sends_at=3))
        with pytest.raises(Interrupted):
            run.train_run(tiny(*SHORT, *BLEU), folder := tmp_path / "run")
    assert counted.calls == 3
    assert steps(folder) == [4, 5]
    run.train_run(tiny(*SHORT, *BLEU), folder)
    assert result(folder, 12) == result(whole, 12)
    assert checkpoints(folder) == checkpoints(whole)


def test_a_whole_checkpoint_says_nothing_of_validations(short: Path) -> None:
    for state in (short / "checkpoints").glob("step-*/state.json"):
        assert "unfinished" not in json.loads(state.read_text())
