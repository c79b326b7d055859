"""The trainings: a ladder of rates for every placement with warm-up and without, then more seeds at the best rate."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from normscope.compare.grid import Cell, Grid
from normscope.runs.config import replaced

from ..engine.pieces import Pieces
from ..ladders.arms import BestOfLadder, best_rate
from ..ladders.runs import Run, train
from .config import StreamsConfig
from .models import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm(BestOfLadder):
    """A placement with one warm-up, over the ladder and at its best rate."""

    placement: str
    warmup_updates: int
    ffn_width: int
    parameters: int


Arms = dict[tuple[str, int], Arm]
"""By placement and warm-up in updates."""


def trained(config: StreamsConfig, trial: Trial, pieces: Pieces) -> Arms:
    """Train what the folder lacks, the ladder first. Raises UserError for a training that failed, and Interrupted."""
    words = trial.name.replace("-", " ")
    widths = {name: trial.equal_ffn_width(name) for name in config.trained(trial.model)}
    make = partial(_cells, config, trial, pieces, widths)
    arms = [(name, warmup) for name in widths for warmup in config.warmups]
    climbed = _train(make(dict.fromkeys(arms, config.peak_lrs), config.ladder_seeds), f"{words}: the ladder", pieces)
    ladders = {
        arm: [[climbed[arm, lr, seed] for lr in config.peak_lrs] for seed in range(1, config.ladder_seeds + 1)]
        for arm in arms
    }
    best = {arm: best_rate(ladder, config.peak_lrs) for arm, ladder in ladders.items()}
    again = _train(make({arm: (lr,) for arm, lr in best.items()}, config.seeds), f"{words}: the best rates", pieces)
    return {
        arm: Arm(
            placement=arm[0],
            warmup_updates=arm[1],
            ffn_width=widths[arm[0]],
            parameters=trial.parameters(arm[0], widths[arm[0]]),
            peak_lrs=config.peak_lrs,
            ladder=ladder,
            best=[again[arm, best[arm], seed] for seed in range(1, config.seeds + 1)],
        )
        for arm, ladder in ladders.items()
    }


Key = tuple[tuple[str, int], float, int]
"""Placement and warm-up, rate, seed."""


def _cells(
    config: StreamsConfig,
    trial: Trial,
    pieces: Pieces,
    widths: dict[str, int],
    rates: dict[tuple[str, int], Sequence[float]],
    seeds: int,
) -> list[Cell]:
    """The first seed of all first. rates: those of each placement and warm-up."""
    found = []
    for (placement, warmup), lrs in rates.items():
        grid = Grid(
            placements_and_warmups=((placement, warmup),), peak_lrs=tuple(lrs), optimizers=("adam",), seeds=seeds
        )
        base = replaced(trial.base, model__ffn_width=widths[placement])
        found += grid.cells(base, pieces.folder / trial.name)
    return sorted(found, key=lambda cell: cell.seed)


def _train(cells: list[Cell], stage: str, pieces: Pieces) -> dict[Key, Run]:
    found = train(cells, stage, pieces)
    return {
        ((c.arm.placement, c.arm.warmup_updates), c.arm.peak_lr, c.seed): run
        for c, run in zip(cells, found, strict=True)
    }
