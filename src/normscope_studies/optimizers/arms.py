"""The trainings: a ladder of rates for every placement, optimiser and warm-up, then more seeds at the best rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from normscope.compare.grid import Cell, Grid
from normscope.optim import OptimizerConfig
from normscope.runs.config import replaced
from normscope.tasks.language_model import LanguageModelRunConfig

from ..engine.models import language_model
from ..engine.pieces import Pieces
from ..ladders.arms import Climbed
from ..ladders.runs import Run, mean_finals, train
from .config import OptimizersConfig


class Key(NamedTuple):
    """What an arm is."""

    placement: str
    optimizer: str
    warmup_updates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm(Climbed):
    """A placement under one optimiser with one warm-up."""

    key: Key
    again: Mapping[float, Sequence[Run]]
    """By rate, one run a seed: of the rates with the lowest losses on the ladder."""

    @property
    def best_lr(self) -> float:
        """The rate with the lowest mean over all seeds; the smaller of two that are equal."""
        return min(sorted(self.again), key=lambda lr: mean_finals(self.again[lr]))

    @property
    def at_best(self) -> Sequence[Run]:
        return self.again[self.best_lr]

    @property
    def lost(self) -> int:
        """How many runs of the ladder did not stay finite."""
        return sum(not run.finite for row in self.ladder for run in row)

    @property
    def cells(self) -> list[Cell]:
        rows = [*self.ladder, *self.again.values()]
        return [run.cell for row in rows for run in row]


Arms = dict[Key, Arm]


def base_config(config: OptimizersConfig) -> LanguageModelRunConfig:
    """What all runs share. Raises UserError for text that is not there."""
    sizes = {name: getattr(config, name) for name in ("width", "ffn_width", "heads", "blocks")}
    return language_model(
        preset=config.preset,
        sizes=sizes | {"attention": {"key_value_heads": config.key_value_heads}},
        text=config.text,
        sequence_length=config.sequence_length,
        batch_sequences=config.batch_sequences,
        optimizer=OptimizerConfig(weight_decay=config.weight_decay),
        updates=config.updates,
        warmup_updates=config.warmup_updates,
        device=config.device,
    )


def trained(config: OptimizersConfig, pieces: Pieces) -> Arms:
    """Train what the folder lacks, the ladder first. Raises UserError for a training that failed, and Interrupted."""
    base = base_config(config)
    keys = [
        Key(placement, optimizer, warmup)
        for placement in config.placements
        for optimizer in config.optimizers
        for warmup in config.warmups
    ]
    ladders = {key: config.ladder(key.optimizer) for key in keys}
    climbed = _runs(config, base, pieces, ladders, config.ladder_seeds, "the ladder")
    seeds = range(1, config.ladder_seeds + 1)
    rows = {key: [[climbed[key, lr, seed] for lr in lrs] for seed in seeds] for key, lrs in ladders.items()}
    best = {key: best_rates(rows[key], ladders[key], config.best_rates) for key in keys}
    again = _runs(config, base, pieces, best, config.seeds, "the best rates")
    return {
        key: Arm(
            key=key,
            peak_lrs=ladders[key],
            ladder=rows[key],
            again={lr: [again[key, lr, seed] for seed in range(1, config.seeds + 1)] for lr in best[key]},
        )
        for key in keys
    }


def best_rates(ladder: Sequence[Sequence[Run]], peak_lrs: Sequence[float], count: int) -> tuple[float, ...]:
    """The rates with the lowest mean losses, rising; the smaller first of those that are equal."""
    means = {lr: mean_finals(column) for lr, column in zip(peak_lrs, zip(*ladder, strict=True), strict=True)}
    return tuple(sorted(sorted(means, key=lambda lr: (means[lr], lr))[:count]))


def _runs(
    config: OptimizersConfig,
    base: LanguageModelRunConfig,
    pieces: Pieces,
    rates: Mapping[Key, Sequence[float]],
    seeds: int,
    stage: str,
) -> dict[tuple[Key, float, int], Run]:
    """By arm, rate and seed; the first seed of all is trained first."""
    cells = [
        (key, cell) for key, lrs in rates.items() for cell in arm_cells(config, base, pieces.folder, key, lrs, seeds)
    ]
    cells.sort(key=lambda one: one[1].seed)
    found = train([cell for _, cell in cells], stage, pieces)
    return {(key, cell.arm.peak_lr, cell.seed): run for (key, cell), run in zip(cells, found, strict=True)}


def arm_cells(
    config: OptimizersConfig, base: LanguageModelRunConfig, folder: Path, key: Key, lrs: Sequence[float], seeds: int
) -> list[Cell]:
    """The runs of one arm: every rate with the first `seeds` seeds."""
    grid = Grid(
        placements_and_warmups=((key.placement, key.warmup_updates),),
        peak_lrs=tuple(lrs),
        optimizers=(key.optimizer,),
        seeds=seeds,
    )
    own = base
    if key.optimizer == "sgd":
        own = replaced(base, optimizer__name=key.optimizer, optimizer__momentum=config.momentum)
    return grid.cells(own, folder)
