"""The best rate of every placement, size and warm-up: a ladder of rates for each seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from normscope.compare.grid import Cell, Grid
from normscope.measure.line import lowest

from ..engine.pieces import Pieces
from ..ladders.runs import Run, train
from .config import AXES, TransferConfig
from .models import run_config


class Key(NamedTuple):
    """What a ladder is of."""

    placement: str
    width: int
    blocks: int
    warmup_updates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Runs of one model and warm-up over the rates."""

    key: Key
    peak_lrs: Sequence[float]
    runs: Sequence[Sequence[Run]]
    """A row a seed, a column a rate."""

    @property
    def best_lrs(self) -> list[float]:
        """Of each seed, by the parabola through the lowest loss and its neighbours over the logarithm of the rate."""
        logs = [math.log(lr) for lr in self.peak_lrs]
        return [math.exp(lowest(logs, [_counted(run) for run in row])) for row in self.runs]

    @property
    def at_an_end(self) -> bool:
        """Whether a seed's lowest loss is at the ladder's first or last rate: its best may lie beyond."""
        ends = (self.peak_lrs[0], self.peak_lrs[-1])
        return any(lr in ends for row in self.runs for lr in [self._lowest(row)])

    @property
    def means(self) -> list[float]:
        """Mean losses in nats at every rate."""
        columns = zip(*self.runs, strict=True)
        return [math.fsum(run.final_nats for run in column) / len(self.runs) for column in columns]

    def _lowest(self, row: Sequence[Run]) -> float:
        losses = [_counted(run) for run in row]
        return self.peak_lrs[losses.index(min(losses))]


def _counted(run: Run) -> float:
    return run.final_nats if run.finite else math.inf


def trained(config: TransferConfig, pieces: Pieces) -> dict[Key, Ladder]:
    """Train what the folder lacks. Raises UserError for a training that failed, and Interrupted."""
    sizes = dict.fromkeys(size for axis in AXES for size in config.sizes(axis))
    cells: list[tuple[Key, Cell]] = []
    for placement in config.placements:
        for width, blocks in sizes:
            base = run_config(config, placement, width, blocks)
            grid = Grid(
                placements_and_warmups=tuple((placement, warmup) for warmup in config.warmups),
                peak_lrs=config.peak_lrs,
                optimizers=("adam",),
                seeds=config.ladder_seeds,
            )
            for cell in grid.cells(base, pieces.folder / f"width-{width}_blocks-{blocks}"):
                cells.append((Key(placement, width, blocks, cell.arm.warmup_updates), cell))
    cells.sort(key=lambda one: one[1].seed)
    found = train([cell for _, cell in cells], "the ladders", pieces)
    runs = {(key, cell.seed, cell.arm.peak_lr): run for (key, cell), run in zip(cells, found, strict=True)}
    return {
        key: Ladder(
            key=key,
            peak_lrs=config.peak_lrs,
            runs=[[runs[key, seed, lr] for lr in config.peak_lrs] for seed in range(1, config.ladder_seeds + 1)],
        )
        for key in dict.fromkeys(key for key, _ in cells)
    }
