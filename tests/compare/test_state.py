"""What a run is doing, read from what it has logged."""

import json
from pathlib import Path
from typing import Any

import pytest

from normscope.cli.display import whole
from normscope.compare import state as state_of_runs
from normscope.compare.grid import Cell, Grid
from normscope.compare.manifest import cell_of
from normscope.compare.state import CellState
from normscope.train import RunFolder
from tiny import tiny


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begun(folder: Path, duration: int | str = 60) -> Cell:
    """A run that has a folder and has logged nothing."""
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(0.1,), optimizers=("adam",), seeds=1
    )
    (cell,) = grid.cells(tiny(f"train.duration={json.dumps(duration)}"), folder)
    cell.folder.path.mkdir(parents=True)
    return cell


def log(cell: Cell, *updates: int, ends: str = "", **values: Any) -> None:
    with cell.folder.metrics_file.open("a") as file:
        for update in updates:
            file.write(
                json.dumps({"event": "update", "update": update, "nll_nats": 5.0} | values) + "\n"
            )
            file.write(
                json.dumps({"event": "validation", "update": update, "nll_nats": 4.0}) + "\n"
            )
        if ends:
            file.write(
                json.dumps({"event": ends, "update": updates[-1], "reason": "a loss"}) + "\n"
            )


def test_a_run_is_followed_from_its_first_update_to_its_end_at_its_rate(
    tmp_path: Path, clock: Clock
) -> None:
    cell = begun(tmp_path)
    state = CellState(cell, 60, clock=clock)
    state.read_new_events()
    assert (state.status, state.updates_per_second) == ("waiting", None)
    state.begin()
    for seconds, update in ((1.0, 10), (2.0, 20), (3.0, 30)):
        clock.seconds = seconds
        log(cell, update)
        state.read_new_events()
    assert (state.status, state.update, state.updates_per_second, state.seconds_left) == (
        "running",
        30,
        10.0,
        3.0,
    )
    state.status = "stopped"
    state.begin()
    clock.seconds = 100.0
    log(cell, 31)
    state.read_new_events()
    assert state.updates_per_second is None, "the pause is no part of a rate"
    log(cell, 60, ends="finished")
    state.read_new_events()
    assert (state.status, state.over) == ("finished", True)


def test_a_halted_run_says_so_and_goes_on(tmp_path: Path, clock: Clock) -> None:
    state = CellState(begun(tmp_path), 60, clock=clock)
    state.begin()
    state.begin(halted=123)
    assert (state.status, state.message.partition(";")[0]) == (
        "halted",
        "process 123 was halted by a signal",
    )
    state.begin()
    assert (state.status, state.message) == ("running", "")


def test_only_what_a_log_has_gained_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = begun(tmp_path)
    log(cell, *range(1, 50))
    state = CellState(cell, 60)
    state.read_new_events()
    read: list[bytes] = []
    event_of = state_of_runs.event_of
    monkeypatch.setattr(state_of_runs, "event_of", lambda line: read.append(line) or event_of(line))
    state.read_new_events()
    assert read == []
    log(cell, 50)
    state.read_new_events()
    assert len(read) == 2


def test_the_end_of_a_run_in_epochs_is_told_by_how_far_it_is_in_them(
    tmp_path: Path, clock: Clock
) -> None:
    cell = begun(tmp_path, duration="3 epochs")
    state = CellState(cell, epochs=3.0, clock=clock)
    assert state.total_updates is None
    state.begin()
    for seconds, update in ((1.0, 10), (2.0, 20), (3.0, 30)):
        clock.seconds = seconds
        log(cell, update, epoch=update / 20)
        state.read_new_events()
    assert (state.total_updates, state.seconds_left) == (60, 3.0)


@pytest.mark.parametrize("name", ["r", "./r", "."])
def test_a_run_may_be_named_by_one_relative_word(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r").mkdir()
    monkeypatch.chdir(tmp_path / "r" if name == "." else tmp_path)
    cell = cell_of(RunFolder(Path(name)), tiny())
    assert cell.log_file.parent.parent.resolve() == tmp_path.parent


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "update", "update": "7"}',
        '{"event": "update", "update": -5, "nll_nats": 2.0}',
        '{"event": "update", "update": 1e999, "nll_nats": 2.0}',
        '{"event": "update", "update": 3, "epoch": 1e-320}',
        '{"event": "update", "update": 3, "nll_nats": "x"}',
        '{"event": "validation", "update": 3, "nll_nats": [1]}',
        '{"event": "decided", "update": 3, "reason": 5, "validations": "3"}',
        "[" * 5000 + "]" * 5000,
        "9" * 5000,
    ],
)
def test_a_line_that_no_run_writes_hides_no_run(line: str, tmp_path: Path) -> None:
    cell = begun(tmp_path, duration="3 epochs")
    log(cell, 1, 2)
    with cell.folder.metrics_file.open("a") as file:
        file.write(line + "\n")
    state = CellState(cell, epochs=3.0)
    state.read_new_events()
    assert type(state.update) is int
    assert whole([state]).startswith("1 run: update ")


def test_a_run_in_a_queue_is_running_once_it_has_logged_something_new(tmp_path: Path) -> None:
    cell = begun(tmp_path)
    log(cell, 1, 2)
    state = CellState(cell, 60)
    state.read_new_events()
    state.status = "queued"
    state.read_new_events()
    assert state.status == "queued"
    log(cell, 3)
    state.read_new_events()
    assert (state.status, state.update) == ("running", 3)
