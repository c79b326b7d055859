"""What people see while they wait: a bar on a terminal, plain lines in a file, and no surprises
from markup.
"""

import io
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from normscope.cli.console import StageDisplay, TrainDisplay
from normscope.cli.display import GridDisplay
from normscope.compare.grid import DEMO_GRID, Grid, demo_config
from normscope.compare.state import CellState, outlook
from tiny import tiny


@pytest.fixture
def file() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(params=["terminal", "file"])
def console(request: pytest.FixtureRequest, file: io.StringIO) -> Console:
    terminal = request.param == "terminal"
    return Console(
        file=file, force_terminal=terminal, markup=False, emoji=False, highlight=False, width=200
    )


def update(number: int) -> dict[str, Any]:
    numbers = {
        "loss_nats": 5.0,
        "lr": 1e-3,
        "gradient_norm": 0.5,
        "target_tokens_per_second": 12345.6,
        "input_wait_share": 0.021,
    }
    return {"event": "update", "update": number, "updates": 100, "elapsed_seconds": 2.0, **numbers}


def test_training_shows_updates_validations_skips_and_the_end(
    console: Console, file: io.StringIO
) -> None:
    with TrainDisplay(console, "[red]run:x:") as display:
        for number in range(1, 101):
            display(update(number))
        display({"event": "validation", "update": 50, "updates": 100, "nll_nats": 4.0, "bleu": 1.5})
        display({"event": "skipped", "update": 51, "updates": 100, "reason": "the loss (nan) [b]"})
        display({"event": "finished", "update": 100, "updates": 100, "summed_lr": 0.1})
    text = file.getvalue()
    assert "[red]run:x:" in text
    assert "update 50: validation 4.0000 nats (5.7708 bits) per target token  BLEU 1.50" in text
    assert "update 51 skipped: the loss (nan) [b]" in text
    assert "finished after 100 updates; cumulative learning rate (sum over updates) 0.1" in text
    if console.is_terminal:
        assert "100/100 updates" in text
    else:
        assert "\x1b" not in text
        assert text.count("loss 5.000 nats") == 1  # once, then not again for ten seconds
        assert text.startswith(
            "[red]run:x:: update 1/100  loss 5.000 nats  lr 1.00e-03  |g| 0.50  12,346 tokens/s  "
            "2.1% waiting for data  3 min 18 s left\n"
        )


def test_a_resumed_run_tells_what_is_left_at_its_rate_since_then(file: io.StringIO) -> None:
    """Updates 60 and 61 took 2 seconds; 39 are left."""
    with TrainDisplay(Console(file=file), "run") as display:
        display._last_plain = time.monotonic()
        display(update(60))
        display._last_plain = -math.inf
        display(update(61))
    assert file.getvalue().endswith("waiting for data  39 s left\n")


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def two_states(folder: Path, clock: Clock) -> list[CellState]:
    """Two runs of 60 updates."""
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(0.1,), optimizers=("adam",), seeds=2
    )
    return [CellState(cell, 60, clock=clock) for cell in grid.cells(tiny(), folder)]


def log(state: CellState, *updates: int, validated: bool = False) -> None:
    """Let the run log updates, and the pool look at it."""
    state.cell.folder.path.mkdir(parents=True, exist_ok=True)
    with state.cell.folder.metrics_file.open("a") as file:
        for update in updates:
            file.write(json.dumps({"event": "update", "update": update}) + "\n")
        if validated:
            file.write(
                json.dumps({"event": "validation", "update": updates[-1], "nll_nats": 4.5}) + "\n"
            )
    state.read_new_events()


def test_a_grid_shows_changes_validations_totals_and_the_time_left(
    console: Console, file: io.StringIO, tmp_path: Path
) -> None:
    clock = Clock()
    first, second = states = two_states(tmp_path, clock)
    with GridDisplay(console, clock) as display:
        display(states)
        first.status = "running"
        log(first, 10, validated=True)
        for _ in range(3):
            display(states)
        clock.seconds = 5.0
        log(first, 11, 20)
        display(states)
        clock.seconds = 31.0
        display(states)
        first.status = "finished"
        display(states)
    text = file.getvalue()
    name = first.cell.name
    if console.is_terminal:
        assert "pre-ln" in text
        assert "20/60" in text
        assert "4.500 at 10" in text
        assert "20 s" in text  # 40 updates at 2 a second
        assert "all 2 runs: update 20/120, 2 updates/s, about 50 s left" in text
    else:
        assert text == (
            f"{name}: running, update 10/60, validation 4.500 nats at update 10\n"
            "all 2 runs: update 20/120, 2 updates/s, about 50 s left\n"
            f"{name}: finished, update 20/60, validation 4.500 nats at update 10\n"
        )
    assert second.status == "waiting"


def test_a_table_of_runs_fits_a_terminal_of_80_columns(file: io.StringIO, tmp_path: Path) -> None:
    cells = DEMO_GRID.cells(demo_config(), tmp_path)
    states = [
        CellState(cell, 300, status="running", update=150, nll_nats=4.5, nll_update=150)
        for cell in cells
    ]
    console = Console(file=file, force_terminal=True, width=80)
    with GridDisplay(console) as display:
        display(states)
    text = file.getvalue()
    assert "…" not in text
    assert text.count("4.500 at 150") >= 4
    assert "0.003" not in text  # the rate of them all


def test_a_rate_is_that_of_this_process_and_an_unknown_total_is_not_guessed(tmp_path: Path) -> None:
    clock = Clock()
    state, _ = two_states(tmp_path, clock)
    log(state, 1, 30)  # by an earlier process
    state.status, state.updates = "running", None
    log(state, 31)
    assert state.updates_per_second is None
    clock.seconds = 4.0
    log(state, 33)
    assert state.updates_per_second == 0.5
    assert state.seconds_left is None
    whole = outlook([state])
    assert (whole.update, whole.updates, whole.seconds_left, whole.updates_per_second) == (
        33,
        None,
        None,
        0.5,
    )


def test_a_run_that_has_been_given_more_updates_is_not_over(tmp_path: Path) -> None:
    state, _ = two_states(tmp_path, Clock())
    log(state, 40)
    with state.cell.folder.metrics_file.open("a") as file:
        file.write(json.dumps({"event": "finished", "update": 40}) + "\n")
    state.read_new_events()
    assert not state.over
    state.updates, state._offset = 40, 0
    state.read_new_events()
    assert state.over


def test_stages_are_named_once(console: Console, file: io.StringIO) -> None:
    with StageDisplay(console) as display:
        for done in range(3):
            display("learn BPE", done, 3)
    assert "learn BPE" in file.getvalue()
    if not console.is_terminal:
        assert file.getvalue() == "learn BPE ...\n"


def test_a_stage_in_parts_says_what_is_left(console: Console, file: io.StringIO) -> None:
    """Shown when 2 of 12 were done; two more took 11 seconds, so that eight take 44."""
    clock = Clock()
    with StageDisplay(console, clock) as display:
        display("rates", 2, 12)
        clock.seconds = 5.0
        display("rates", 3, 12)
        clock.seconds = 11.0
        display("rates", 4, 12)
        if console.is_terminal:
            display.bar.refresh()
    if console.is_terminal:
        assert "4/12" in file.getvalue()
        assert "about 44 s left" in file.getvalue()
    else:
        assert file.getvalue() == "rates ...\nrates: 4 of 12, about 44 s left\n"
