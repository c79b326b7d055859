"""Batches that other processes prepare are the same batches, and nothing of a run hangs on those
processes.
"""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest
import torch

from forked import Forked, start
from normscope.errors import UserError
from normscope.processes.surroundings import is_held
from normscope.runs.config import load
from normscope.runs.run import train_run
from normscope.train.protocol import Feed
from tiny import SHORT, finish, options, result, tiny

CPU = torch.device("cpu")
TEXT = (
    "model.width=16",
    "model.ffn_width=16",
    "model.heads=2",
    "model.blocks=1",
    "data.sequence_length=24",
)
LENGTH = ("train.accumulation=2", "train.duration=7", "train.validate_every=4", "train.threads=1")


@pytest.mark.thorough
@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("task", ["masked-lm", "language-model"])
def test_text_that_workers_prepare_trains_to_the_same_bits(task: str, tmp_path: Path) -> None:
    settings = (f'task="{task}"', *TEXT, *LENGTH, 'train.device="cpu"', "data.batch_sequences=8")
    for workers in (0, 2):
        train_run(
            load(None, [*settings, f"train.input_workers={workers}"]), tmp_path / str(workers)
        )
    assert result(tmp_path / "0", 7) == result(tmp_path / "2", 7)


def test_a_run_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    train_run(tiny(*SHORT), tmp_path / "none")
    changing = tmp_path / "changing"
    train_run(tiny(*SHORT, "train.duration=7", "train.input_workers=2"), changing)
    train_run(tiny(*SHORT, "train.input_workers=1"), changing)
    assert result(changing, 12) == result(tmp_path / "none", 12)


def test_a_killed_training_leaves_its_folder_and_no_process(tmp_path: Path) -> None:
    """Workers inherit the folder's lock, so that one that lived on would hold it."""
    run = tmp_path / "run"
    process, workers = _training(run)
    process.kill()
    finish(process)
    patience = time.monotonic() + 60  # a busy machine takes its time
    # A worker that has only just been forked is none of the two yet, and ends as soon as it asks
    # who started it.
    while (any(map(_lives, workers)) or is_held(run)) and time.monotonic() < patience:
        time.sleep(0.01)
    assert not any(map(_lives, workers))
    assert not is_held(run)


def test_ctrl_c_reaches_the_workers_too_and_the_run_saves(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process, workers = _training(run)
    for pid in (*workers, process.pid):
        os.kill(pid, signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "saved" in err
    assert "Traceback" not in err


def _training(run: Path) -> tuple[Forked, list[int]]:
    """A training that is under way, and its two workers."""
    if not Path("/proc/self/task").is_dir():
        pytest.skip("the processes that one has started are read from Linux's /proc")
    process = start(
        "train", *options("train.duration=20000", "train.input_workers=2"), "--run", str(run)
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers: list[int] = []
    # The system's list may leave some out while others start.
    while len(workers) < 2 or not (run / "metrics.jsonl").is_file():
        assert process.poll() is None, finish(process)
        time.sleep(0.05)
        workers = [int(word) for word in children.read_text().split()]
    return process, workers


def _lives(pid: int) -> bool:
    """A process that has ended and that nobody waits for stays in the table, as a zombie."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@dataclass
class Numbered:
    """A batch that holds its number alone."""

    number: int

    def to(self, device: torch.device) -> Self:
        return self


class Slow:
    """An objective whose batches take a second each, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0

    def prepare(self, number: int) -> Numbered:
        return Numbered(number)

    def micro_batch(self, number: int) -> Numbered:
        self.now += 1.0
        return self.prepare(number)


@pytest.fixture
def feed() -> Iterator[Feed]:
    made = Feed(Slow(), workers=2, end=100, device=CPU)  # type: ignore[arg-type]
    yield made
    made.close()


def test_batches_come_in_the_order_of_their_numbers_and_from_anywhere(feed: Feed) -> None:
    asked = [4, 5, 6, 7, 2, 3, 0, 1, 4]
    assert [feed(number).number for number in asked] == asked


def test_a_worker_that_was_killed_is_said_in_one_line(feed: Feed) -> None:
    feed(0)
    for worker in feed._ahead._workers:  # type: ignore[attr-defined]
        worker.kill()
    with pytest.raises(UserError, match=r"ended from outside.*train\.input_workers=0"):
        [feed(number) for number in range(1, 100)]


def test_time_spent_waiting_is_that_of_the_batches() -> None:
    slow = Slow()
    made = Feed(
        slow,  # type: ignore[arg-type]
        workers=0,
        end=9,
        device=CPU,
        clock=lambda: slow.now,
    )
    for number in range(5):
        made(number)
        slow.now += 2.0
    assert made.waited_seconds == 5.0


def test_the_share_of_time_waiting_is_told_with_every_update(tmp_path: Path) -> None:
    told: list[float] = []
    train_run(
        tiny("train.duration=3"),
        tmp_path / "run",
        listeners=[lambda event: told.append(event["input_wait_share"])],
    )
    assert len(told) >= 3
    assert all(0 < share < 1 for share in told[1:])
    assert "input_wait_share" not in (tmp_path / "run/metrics.jsonl").read_text()
