"""A small grid for tests of engines, and what it must come to on all of them."""

from contextlib import closing
from pathlib import Path

import pytest

from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.pool import run_cells
from normscope.engines.local import OnThisMachine
from normscope.engines.seam import Engine
from tiny import result, tiny

LENGTH = (
    "train.duration=60",
    "train.accumulation=2",
    "train.validate_every=20",
    "train.checkpoint_every=10",
)
LAST = 60
SEEDS, RATES = 4, 3
"""Of a grid of 24."""


def named_cells(folder: Path, *settings: str, seeds: int = 1, rates: int = 1) -> list[Cell]:
    """Runs of two placements, at so many rates and seeds."""
    grid = Grid(
        placements_and_warmups=(("post-ln", 0), ("pre-ln", 0)),
        peak_lrs=(1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3)[:rates],
        optimizers=("adam",),
        seeds=seeds,
    )
    return grid.cells(tiny(*LENGTH, *settings), folder, elsewhere=True)


def grid_cells(folder: Path, *settings: str, seeds: int = 1, rates: int = 1) -> list[Cell]:
    """The same, written down."""
    made = named_cells(folder, *settings, seeds=seeds, rates=rates)
    write_configs(made)
    return made


def trained(made: list[Cell], engine: Engine) -> list[str]:
    """Trains them and lets go of the engine; returns their ends."""
    with closing(engine):
        states = run_cells(made, engine=engine, watch=lambda states: None)
    return [state.status for state in states]


def grid_of_24(folder: Path) -> list[Cell]:
    """Runs of two placements at three rates and four seeds, written down."""
    return grid_cells(folder, seeds=SEEDS, rates=RATES)


def bits(made: list[Cell]) -> dict[str, tuple[str, bytes]]:
    """Returns weights and metrics of every run."""
    return {cell.name: result(cell.folder.path, LAST) for cell in made}


def cells_of_two(folder: Path) -> list[Cell]:
    """Runs of two placements that two processes each can train, written down."""
    return grid_cells(folder, 'train.parallel="replicas"')


def losses(cell: Cell) -> list[float]:
    """Of all updates and validations."""
    found = [event.get("nll_nats") for event in cell.folder.events()]
    return [float(loss) for loss in found if isinstance(loss, float)]


def are_of_two(made: list[Cell], folder: Path) -> None:
    """Checks that two processes have trained each, to the losses of one."""
    alone = cells_of_two(folder)
    assert trained(alone, OnThisMachine(1)) == ["finished"] * 2
    for cell, of_one in zip(made, alone, strict=True):
        assert cell.folder.environment()["processes"] == 2
        assert "processes" not in of_one.folder.environment()
        assert len(losses(of_one)) == LAST + 3
        assert losses(cell) == pytest.approx(losses(of_one), rel=0, abs=1e-5)


def updates(made: list[Cell]) -> int:
    """Returns the updates of all runs together, so far."""
    files = [cell.folder.metrics_file for cell in made]
    return sum(file.read_bytes().count(b'"event": "update"') for file in files if file.is_file())
