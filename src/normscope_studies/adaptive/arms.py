"""The trainings: a ladder of rates for everything with warm-up and without, then more seeds at the best rate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from normscope.compare.grid import Cell, Grid
from normscope.runs.config import replaced
from normscope.tasks.language_model import LANGUAGE_MODEL
from normscope.tasks.protocol import AnyCorpus, TaskFromScratch
from normscope.tasks.run_config import RunConfig
from normscope.tasks.translation import TRANSLATION

from ..engine.models import language_model_base, translation_base
from ..engine.pieces import Pieces
from ..ladders.arms import BestOfLadder, best_rate
from ..ladders.runs import Run, train
from .config import AdaptiveStudyConfig
from .families import Drive

_TASKS: Mapping[str, TaskFromScratch[Any, Any, Any, Any]] = {
    "language-model": LANGUAGE_MODEL,
    "translation": TRANSLATION,
}
"""The tasks, by the names that the study gives them."""
_BASES: Mapping[str, Callable[[AdaptiveStudyConfig], RunConfig]] = {
    "language-model": language_model_base,
    "translation": translation_base,
}


class Key(NamedTuple):
    """What an arm is."""

    placement: str
    drive: Drive
    warmup_updates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm(BestOfLadder):
    """A placement, moved in one way, with one warm-up: over the ladder and at its best rate."""

    key: Key

    @property
    def cells(self) -> list[Cell]:
        return [run.cell for row in (*self.ladder, self.best) for run in row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One task: what its runs share, and its arms."""

    task: str
    unigram_nats: float
    base: RunConfig
    arms: Mapping[Key, Arm]


def trained(config: AdaptiveStudyConfig, task: str, pieces: Pieces) -> Trial:
    """Train what the folder lacks, the ladder first. Raises UserError for text that is not there or a training that
    failed, and Interrupted."""
    of, base = _TASKS[task], base_of(config, task)
    corpus: AnyCorpus = of.open(base)
    keys = [Key(*kind, warmup) for kind in config.kinds for warmup in config.warmups]
    lrs, seeds = config.peak_lrs, range(1, config.ladder_seeds + 1)
    climbed = _runs(config, base, task, pieces, dict.fromkeys(keys, lrs), config.ladder_seeds, "the ladder")
    ladders = {key: [[climbed[key, lr, seed] for lr in lrs] for seed in seeds] for key in keys}
    best = {key: (best_rate(ladder, lrs),) for key, ladder in ladders.items()}
    again = _runs(config, base, task, pieces, best, config.seeds, "the best rates")
    arms = {
        key: Arm(
            key=key,
            peak_lrs=lrs,
            ladder=ladders[key],
            best=[again[key, best[key][0], seed] for seed in range(1, config.seeds + 1)],
        )
        for key in keys
    }
    return Trial(task=task, unigram_nats=of.chance_nats(corpus), base=base, arms=arms)


def base_of(config: AdaptiveStudyConfig, task: str) -> RunConfig:
    """What all runs of a task share; placement, number, warm-up, rate and seed are still to be chosen."""
    return _BASES[task](config)


def arm_cells(
    config: AdaptiveStudyConfig, base: RunConfig, folder: Path, key: Key, lrs: Sequence[float], seeds: int
) -> list[Cell]:
    """The runs of one arm: every rate with the first `seeds` seeds."""
    grid = Grid(
        placements_and_warmups=((key.placement, key.warmup_updates),),
        peak_lrs=tuple(lrs),
        optimizers=(base.optimizer.name,),
        seeds=seeds,
    )
    return grid.cells(_moved(config, base, key.drive), folder / key.drive)


def _moved(config: AdaptiveStudyConfig, base: RunConfig, drive: Drive) -> RunConfig:
    if drive == "fixed":
        return base
    if drive == "schedule":
        return replaced(base, adaptive__over=config.over_updates)
    return replaced(
        base,
        adaptive__controller="output-change",
        adaptive__over=config.controlled_over_updates,
        adaptive__largest_change=config.largest_change,
        adaptive__measure_every=config.measure_every,
    )


def _runs(
    config: AdaptiveStudyConfig,
    base: RunConfig,
    task: str,
    pieces: Pieces,
    rates: Mapping[Key, Sequence[float]],
    seeds: int,
    stage: str,
) -> dict[tuple[Key, float, int], Run]:
    """By arm, rate and seed; the first seed of all is trained first."""
    folder = pieces.folder / task
    cells = [(key, cell) for key, lrs in rates.items() for cell in arm_cells(config, base, folder, key, lrs, seeds)]
    cells.sort(key=lambda one: one[1].seed)
    found = train([cell for _, cell in cells], f"{task.replace('-', ' ')}: {stage}", pieces)
    return {(key, cell.arm.peak_lr, cell.seed): run for (key, cell), run in zip(cells, found, strict=True)}
