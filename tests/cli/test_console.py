"""What people see while they wait: a bar on a terminal, plain lines in a file, and no surprises from markup."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from normscope.cli.console import GridDisplay, StageDisplay, TrainDisplay
from normscope.studies.grids.grid import Grid
from normscope.studies.grids.pool import CellState
from tiny import tiny


@pytest.fixture
def file() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(params=["terminal", "file"])
def console(request: pytest.FixtureRequest, file: io.StringIO) -> Console:
    terminal = request.param == "terminal"
    return Console(file=file, force_terminal=terminal, markup=False, emoji=False, highlight=False, width=200)


def update(number: int) -> dict[str, Any]:
    numbers = {"loss_nats": 5.0, "lr": 1e-3, "gradient_norm": 0.5, "target_tokens_per_second": 12345.6}
    return {"event": "update", "update": number, "updates": 100, **numbers}


def test_training_shows_updates_validations_skips_and_the_end(console: Console, file: io.StringIO) -> None:
    with TrainDisplay(console, "[red]run:x:") as display:
        for number in range(1, 101):
            display(update(number))
        display({"event": "validation", "update": 50, "updates": 100, "nll_nats": 4.0, "nll_bits": 5.77, "bleu": 1.5})
        display({"event": "skipped", "update": 51, "updates": 100, "reason": "the loss (nan) [b]"})
        display({"event": "finished", "update": 100, "updates": 100, "summed_lr": 0.1})
    text = file.getvalue()
    assert "[red]run:x:" in text
    assert "update 50: validation 4.0000 nats (5.7700 bits) per target token  BLEU 1.50" in text
    assert "update 51 skipped: the loss (nan) [b]" in text
    assert "finished after 100 updates; cumulative learning rate (sum over updates) 0.1" in text
    if console.is_terminal:
        assert "100/100 updates" in text
    else:
        assert "\x1b" not in text
        assert text.count("loss 5.000 nats") == 1  # once, then not again for ten seconds
        assert text.startswith("[red]run:x:: update 1/100  loss 5.000 nats  lr 1.00e-03  |g| 0.50  12,346 tokens/s\n")


def test_a_grid_shows_each_change_once(console: Console, file: io.StringIO, tmp_path: Path) -> None:
    grid = Grid(placements_and_warmups=(("pre-ln", 0),), peak_lrs=(0.1,), optimizers=("adam",), seeds=2)
    states = [CellState(cell) for cell in grid.cells(tiny(), tmp_path)]
    with GridDisplay(console) as display:
        display(states)
        states[0].status, states[0].update = "running", 7
        for _ in range(3):
            display(states)
        states[0].nll_nats = 4.5
        display(states)
    text = file.getvalue()
    if console.is_terminal:
        assert "pre-ln" in text
        assert "4.500" in text
    else:
        name = states[0].cell.name
        assert text == f"{name}: running (update 7)\n{name}: running, validation 4.500 nats (update 7)\n"


def test_stages_are_named_once(console: Console, file: io.StringIO) -> None:
    with StageDisplay(console) as display:
        for done in range(3):
            display("learn BPE", done, 3)
    assert "learn BPE" in file.getvalue()
    if not console.is_terminal:
        assert file.getvalue() == "learn BPE ...\n"
