"""A small grid for tests of engines, and what it must come to on all of them."""

from pathlib import Path

from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.pool import run_cells
from normscope.engines.seam import AnyEngine
from normscope.runs.config import load
from tiny import result, tiny

LENGTH = ("train.duration=60", "train.accumulation=2", "train.validate_every=20", "train.checkpoint_every=10")
LAST = 60


def cells(folder: Path, seeds: int, *settings: str, own: Path | None = None) -> list[Cell]:
    """Runs of two placements, some with warm-up and some without, written down. own: the file of a user's model."""
    other = "pre-ln" if own is None else "own"
    grid = Grid(
        placements_and_warmups=(("post-ln", 0), ("post-ln", 20), (other, 0), (other, 20)),
        peak_lrs=(1e-3,),
        optimizers=("adam",),
        seeds=seeds,
    )
    base = tiny(*LENGTH, *settings) if own is None else load(Path(f"{own}:build"), [*LENGTH, *settings])
    made = grid.cells(base, folder)
    write_configs(made)
    return made


def trained(made: list[Cell], engine: AnyEngine) -> list[str]:
    """Train them; their ends."""
    return [state.status for state in run_cells(made, engine=engine, watch=lambda states: None)]


def bits(made: list[Cell]) -> dict[str, tuple[str, bytes]]:
    """Of every run, its weights and metrics."""
    return {cell.name: result(cell.folder.path, LAST) for cell in made}
