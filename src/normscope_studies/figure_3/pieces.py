"""All that figure 3 is made of, measured or read from its folder: a piece for each model, size, seed and condition."""

from dataclasses import dataclass
from typing import Any

import torch

from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.manifest import sources
from normscope.compare.pool import run_cells
from normscope.compare.state import CellState
from normscope.data.parallel.corpus import Corpus
from normscope.errors import UserError
from normscope.train.device import available_cores, choose_device

from ..engine.pieces import Pieces
from .config import PLACEMENTS, POST, Condition, Figure3Config, corpus_of
from .measure import Bench, Norms


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Norms of every model; lists are over seeds."""

    bench: Bench
    layers: dict[str, list[Norms]]
    """By placement: panels (a) and (b), at initialisation."""
    last: dict[tuple[Condition, str, int], list[Norms]]
    """By condition, placement and blocks: panels (c) and (d)."""
    before: list[Norms]
    """Of the model that is trained, with its initial weights; empty where none is trained."""
    after: list[Norms]
    """Of the same after the warm-up."""
    trained_by: dict[str, dict[str, Any]]
    """By training: the source that made it."""


def measure(config: Figure3Config, pieces: Pieces) -> Measured:
    """What the folder lacks is measured, the first seed of everything first; the trainings come last.

    Raises UserError for a corpus that is not there, a run folder that holds something else, or a training that failed.
    """
    corpus, device = corpus_of(config), choose_device(config.device)
    cells = _cells(config, pieces)
    bench = Bench(config, corpus, device)
    found = Measured(bench=bench, layers={name: [] for name in PLACEMENTS}, last={}, before=[], after=[], trained_by={})
    for seed in range(1, config.seeds + 1):
        pieces.watch("seeds", seed - 1, config.seeds)
        _measure_seed(found, config, pieces, seed)
    pieces.watch("seeds", config.seeds, config.seeds)
    _train(cells, pieces, device)
    found.trained_by.update(sources(cells))
    for cell in cells:
        condition = config.layers_condition
        name = f"after-warm-up/{cell.arm.placement}_seed-{cell.seed}"
        asked = bench.asked_of(cell, condition) | {"trained_by": found.trained_by[cell.name]["source_sha256"]}
        found.after.append(pieces.get(name, asked, bench.after_training, cell, condition))
    return found


def _measure_seed(found: Measured, config: Figure3Config, pieces: Pieces, seed: int) -> None:
    bench, layers = found.bench, config.layers_condition

    def piece(name: str, placement: str, blocks: int, condition: Condition, **options: Any) -> Norms:
        model = config.model(placement, blocks, condition.dropout, small=options.pop("small", False))
        asked = bench.asked(model, condition, seed) | options
        return pieces.get(  # type: ignore[no-any-return]
            f"{name}_seed-{seed}", asked, bench.at_start, model, condition, seed, **options
        )

    for placement in PLACEMENTS:
        found.layers[placement].append(piece(f"layers/{placement}", placement, config.blocks[0], layers))
    for condition in config.conditions:
        for blocks in config.blocks:
            for placement in PLACEMENTS:
                name = f"last/{placement}_{blocks}-{blocks}_{condition.name}"
                one = piece(name, placement, blocks, condition, last_only=True)
                found.last.setdefault((condition, placement, blocks), []).append(one)
    if config.warm_up_seeds:
        found.before.append(piece(f"before-warm-up/{POST}", POST, config.blocks[0], layers, small=True))


def _cells(config: Figure3Config, pieces: Pieces) -> list[Cell]:
    """The trainings, one a seed, in the folder warm-up, laid out as `normscope compare` does."""
    if not config.warm_up_seeds:
        return []
    grid = Grid(
        placements_and_warmups=((POST, config.warm_up_updates),),
        peak_lrs=(config.warm_up_peak_lr,),
        optimizers=("adam",),
        seeds=config.warm_up_seeds,
    )
    return grid.cells(config.training(), pieces.folder / "warm-up")


def _train(cells: list[Cell], pieces: Pieces, device: torch.device) -> None:
    total = sum(int(cell.config.train.duration) for cell in cells)

    def watch(states: list[CellState[Cell]]) -> None:
        pieces.watch("updates of the warm-up", sum(state.update for state in states), total)

    if cells:
        write_configs(cells)
    processes = available_cores() if device.type == "cpu" else 1
    states = run_cells(cells, engine=pieces.engine(processes), watch=watch)
    failed = [state for state in states if state.status != "finished"]
    if failed:
        state = failed[0]
        raise UserError(f"{state.cell.name}: {state.status}: {state.message} (log: {state.cell.log_file})")


def corpus_title(corpus: Corpus) -> str:
    """Languages and sizes, for the conditions."""
    languages = f"{corpus.source.form.language}-{corpus.target.form.language}"
    return f"{languages}, {len(corpus.splits['train']):,} training sentences, {len(corpus.target.vocabulary):,} entries"
