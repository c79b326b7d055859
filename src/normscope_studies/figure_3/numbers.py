"""Figure 3 as numbers: pieces of every model, measured or read from the folder, and theory on the same batches.

Arrays are over seeds. S = seeds, L = layers of a stack, B = depths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from normscope.compare.grid import Cell, Grid
from normscope.compare.manifest import sources
from normscope.data.parallel.batches import TranslationBatch
from normscope.errors import UserError
from normscope.evidence.estimates import Floats, estimate, exponent, slopes
from normscope.measure import Estimate
from normscope.tasks.translation import translation
from normscope.theory.predict import ModelSetting, predict
from normscope.train.device import choose_device

from ..engine.ladders import train
from ..engine.pieces import Pieces
from ..theory.simulation import setting_of
from .config import PLACEMENTS, POST, Condition, Figure3Config, corpus_of
from .measure import MATRICES, STACKS, Bench

Layers = dict[tuple[str, str], Floats]
"""By matrix and stack: (S, L), or (L,) of what is predicted."""
PARTS = [(matrix, stack) for stack in STACKS for matrix in MATRICES]
"""In the order in which claims name them."""
KINDS = ("norm_of_mean", "mean_of_norms", "expected_squared")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPieces:
    """Norms of every model; lists are over seeds."""

    bench: Bench
    layers: dict[str, list[dict[str, Any]]]
    """By placement: panels (a) and (b), at initialisation."""
    last: dict[tuple[Condition, str, int], list[dict[str, Any]]]
    """By condition, placement and blocks: panels (c) and (d)."""
    before: list[dict[str, Any]]
    """Of the model that is trained, with its initial weights; empty where none is trained."""
    after: list[dict[str, Any]]
    """Of the same after the warm-up."""
    trained_by: dict[str, dict[str, Any]]
    """By training: the source that made it."""


def measure(config: Figure3Config, pieces: Pieces) -> ModelPieces:
    """What the folder lacks is measured, the first seed of everything first; the trainings come last.

    Raises UserError for a corpus that is not there, a run folder that holds something else, or a training that failed.
    """
    corpus, device = corpus_of(config.corpus, config.toy_pairs), choose_device(config.device)
    cells = _cells(config, pieces)
    bench, layers = Bench(config, corpus, device), config.layers_condition
    found = ModelPieces(
        bench=bench, layers={name: [] for name in PLACEMENTS}, last={}, before=[], after=[], trained_by={}
    )
    for seed in range(1, config.seeds + 1):
        pieces.watch("seeds", seed - 1, config.seeds)
        _measure_seed(found, config, pieces, seed)
    pieces.watch("seeds", config.seeds, config.seeds)
    for run in train(cells, "the warm-up", pieces) if cells else ():
        if not run.finite:
            raise UserError(f"{run.cell.name}: its loss did not stay finite (log: {run.cell.log_file})")
    found.trained_by.update(sources(cells))
    for cell in cells:
        run_config = translation(cell.config, "figure 3")
        asked = bench.asked_of(run_config, layers) | {"trained_by": found.trained_by[cell.name]["source_sha256"]}
        name = f"after-warm-up/{cell.arm.placement}_seed-{cell.seed}"
        found.after.append(pieces.get(name, asked, bench.after_training, cell.folder.path, layers, cell.seed))
    return found


def _measure_seed(found: ModelPieces, config: Figure3Config, pieces: Pieces, seed: int) -> None:
    bench, layers = found.bench, config.layers_condition

    def piece(name: str, placement: str, blocks: int, condition: Condition, **options: Any) -> dict[str, Any]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure3Numbers:
    """What the claims are judged by."""

    blocks: tuple[int, ...]
    layers: dict[str, dict[str, Layers]]
    """By placement, then norm_of_mean, mean_of_norms or expected_squared."""
    last: dict[Condition, dict[str, Floats]]
    """By condition and placement: (S, B), the norm of the last W2's gradient, mean over batches."""
    before: dict[str, Layers]
    """As `layers`, of the model that is trained, with its initial weights; empty where none is trained."""
    after: dict[str, Layers]


def numbers_of(measured: ModelPieces, blocks: tuple[int, ...]) -> Figure3Numbers:
    last: dict[Condition, dict[str, Floats]] = {}
    for condition, placement, _ in measured.last:
        rows = [
            [one["W2"]["decoder"]["mean_of_norms"][-1] for one in measured.last[condition, placement, depth]]
            for depth in blocks
        ]
        last.setdefault(condition, {})[placement] = np.array(rows).T
    return Figure3Numbers(
        blocks=blocks,
        layers={placement: _by_kind(pieces) for placement, pieces in measured.layers.items()},
        last=last,
        before=_by_kind(measured.before),
        after=_by_kind(measured.after),
    )


def _by_kind(pieces: Sequence[dict[str, Any]]) -> dict[str, Layers]:
    if not pieces:
        return {}
    return {kind: {(m, s): np.array([one[m][s][kind] for one in pieces]) for m, s in PARTS} for kind in KINDS}


def factor_per_layer(values_SL: Floats) -> Estimate:
    """Of the logarithm, from layer to layer: a line for each seed, and the mean over seeds; 0 is what stays."""
    return estimate(slopes(np.arange(values_SL.shape[1]), values_SL))


def without_noise(layers: Mapping[str, Layers], key: tuple[str, str]) -> Floats:
    """(L,) The norm of the expected gradient, mean over seeds: roots of the unbiased squares, 0 for those below it."""
    norms: Floats = np.sqrt(np.maximum(layers["expected_squared"][key], 0.0)).mean(0)
    return norms


def left_after_warm_up(numbers: Figure3Numbers) -> dict[tuple[str, str], Estimate]:
    """(L,) The norm of the mean gradient as a share of what it was before, over the seeds that were trained."""
    before, after = numbers.before["norm_of_mean"], numbers.after["norm_of_mean"]
    return {key: estimate(after[key] / before[key][: len(after[key])]) for key in PARTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class _PredictedNorms:
    """Frobenius norms of one model, layer by layer, before any model is built."""

    norm: Layers
    """Of a batch's gradient, mean over the batches."""
    norm_of_mean: Layers
    """Of the gradient averaged over all batches of a seed: about that of the batches taken as one."""

    @property
    def factors(self) -> dict[tuple[str, str], float]:
        """Logarithms of the factors from layer to layer, of the norm of the mean."""
        return {key: float(factor_per_layer(curve[None]).mean) for key, curve in self.norm_of_mean.items()}


@dataclass(frozen=True, slots=True)
class Figure3Theory:
    """What theory predicts of every model that is measured."""

    blocks: tuple[int, ...]
    norms: Mapping[tuple[Condition, str, int], _PredictedNorms]
    """By condition, placement and blocks of each stack."""

    def last(self, condition: Condition, placement: str) -> list[float]:
        """Norm of the last W2's gradient, by depth."""
        return [float(self.norms[condition, placement, depth].norm["W2", "decoder"][-1]) for depth in self.blocks]

    def exponent(self, condition: Condition, placement: str) -> float:
        """Of depth, of the last W2's."""
        return float(exponent(self.blocks, np.array([self.last(condition, placement)])).mean)


def theory_of(config: Figure3Config, bench: Bench) -> Figure3Theory:
    """For every model, on the batches that it is measured on."""
    vocabulary = len(bench.corpus.target.vocabulary)
    found: dict[tuple[Condition, str, int], _PredictedNorms] = {}
    for condition in {config.layers_condition, *config.conditions}:
        model = config.model(POST, config.blocks[0], condition.dropout)

        def setting(batches: Sequence[TranslationBatch], model: Any = model) -> ModelSetting:
            return setting_of(batches, model, vocabulary=vocabulary, label_smoothing=config.label_smoothing)

        seeds = [bench.batches(condition, seed) for seed in range(1, config.seeds + 1)]
        single = [setting([batch]) for batches in seeds for batch in batches]
        averaged = [setting(batches) for batches in seeds]
        for blocks in config.blocks if condition in config.conditions else config.blocks[:1]:
            for placement in PLACEMENTS:
                norm, norm_of_mean = (
                    _predicted(placement, [replace(one, blocks=blocks) for one in group])
                    for group in (single, averaged)
                )
                found[condition, placement, blocks] = _PredictedNorms(norm=norm, norm_of_mean=norm_of_mean)
    return Figure3Theory(config.blocks, found)


def _predicted(placement: str, settings: Sequence[ModelSetting]) -> Layers:
    """Means over the settings."""
    curves = [predict(placement, setting) for setting in settings]
    return {
        (matrix, stack): np.mean(
            [np.asarray(one[stack].gradient_norm[MATRICES[matrix]], np.float64) for one in curves], axis=0
        )
        for matrix, stack in PARTS
    }
