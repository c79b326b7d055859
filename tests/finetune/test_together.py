"""A search whose trainings several processes share out by Trainer, as torchrun starts them."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import forked
import labelled_toy
import together

pytest.importorskip("transformers", reason="needs Hugging Face transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")

ROWS = 27
"""The last of their batches of 8 has three rows: a fourth process has none of it."""


@pytest.fixture
def words(run: Path, tmp_path: Path) -> list[str]:
    """A search of two settings, without dropout, of which every process would have a mask of its
    own.
    """
    train, dev = labelled_toy.written(tmp_path, train=ROWS, dev=13)
    given = ["finetune", str(run), "--train", str(train), "--dev", str(dev), "--dropout", "0"]
    given += ["--batch-sizes", "8", "--rates", "1e-3,3e-3", "--epochs", "2", "--seeds", "2"]
    return [*given, "--device", "cpu", "--out"]


def searched(words: list[str], out: Path, size: int) -> list[dict[str, Any]]:
    """What the cells of a search have come to that so many processes have made."""
    ended = together.all_ended(together.forked_ones(size, [*words, str(out)]), 300)
    assert set(ended.codes) == {0}, ended.said
    assert ended.said.count("report.html") == 1, ended.said
    assert ended.said.count("rows to train on") == 1
    files = sorted((out / "cells").iterdir())
    return [json.loads(file.read_text())["scores"] for file in files]


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_several_processes_come_to_what_one_does(
    size: int, words: list[str], tmp_path: Path
) -> None:
    alone = searched(words, tmp_path / "one", 1)
    several = searched(words, tmp_path / "several", size)
    assert len(alone) == len(several) == 3
    for one, other in zip(alone, several, strict=True):
        assert other["made_by"]["processes"] == str(size)
        assert "processes" not in one["made_by"]
        assert len(one["losses"]) == 8
        assert numbers(other) == pytest.approx(numbers(one), rel=0, abs=2e-6)
        assert other["predicted"] == one["predicted"]
    # The bound is far below what a setting or a seed changes.
    assert abs(alone[0]["nll_nats"] - alone[2]["nll_nats"]) > 1e-4


def numbers(scores: dict[str, Any]) -> list[float]:
    return [scores["accuracy"], scores["nll_nats"], *(loss for _, loss in scores["losses"])]


def test_several_processes_go_on_with_what_one_has_finished(
    words: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    searched([*words[:-1], "--seeds", "1", "--out"], out, 1)
    there = {file.name: file.stat().st_mtime_ns for file in (out / "cells").iterdir()}
    assert len(searched(words, out, 2)) == len(there) + 1
    after = {file.name: file.stat().st_mtime_ns for file in (out / "cells").iterdir()}
    assert {name: after[name] for name in there} == there


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--processes", "2"], "train one setting after the other together: leave out --processes"),
        (["--dev", "absent.tsv"], "absent.tsv"),
        (["--dropout", "2"], "lies in [0, 1)"),
    ],
)
def test_what_all_of_them_refuse_is_said_once(
    more: list[str], says: str, words: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = [*words[:-1], *more, "--out", str(out)]
    ended = together.all_ended(together.forked_ones(2, asked))
    assert ended.codes == (2, 2), ended.said
    (line,) = ended.lines_of_ours()
    assert line.startswith("error: ")
    assert says in ended.said
    assert not out.exists()


def under_way(words: list[str], out: Path) -> list[forked.Forked]:
    """Two processes that have begun a search of many hours."""
    processes = together.forked_ones(2, [*words, str(out), "--epochs", "4000"])
    while not (out / ".lock").exists():
        assert processes[0].poll() is None, processes[0].communicate()
        time.sleep(0.02)
    return processes


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_process_that_is_killed_ends_all_and_is_named(
    rank: int, words: list[str], tmp_path: Path
) -> None:
    processes = under_way(words, tmp_path / "out")
    processes[rank].kill()
    ended = together.all_ended(processes)
    assert ended.codes[1 - rank] == 1, ended.said
    (line,) = ended.lines_of_ours()
    assert line.startswith(f"stopped: process {rank} of 2 ({processes[rank].pid} on ")
    assert not list((tmp_path / "out").glob("cells/*.json"))


def test_a_signal_to_all_of_them_is_told_once(words: list[str], tmp_path: Path) -> None:
    processes = under_way(words, tmp_path / "out")
    for process in processes:
        process.terminate()
    ended = together.all_ended(processes)
    assert ended.codes[0] == 128 + signal.SIGTERM, ended.said
    # Who waits for another one's numbers may meet its end before the signal.
    assert ended.codes[1] in (128 + signal.SIGTERM, 1)
    assert len(ended.lines_of_ours()) == 1, ended.said
    assert "stopped by SIGTERM; run the same command to resume" in ended.said
