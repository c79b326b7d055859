"""Figure 3 as numbers: pieces of every model, measured or read from the folder, and theory on the
same batches.

Arrays are over seeds. S = seeds, L = layers of a stack, B = depths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from normscope.compare.grid import Cell, Grid
from normscope.errors import UserError
from normscope.measure import Estimate
from normscope.tasks.translation import translation
from normscope.theory.predict import ModelSetting, predict
from normscope.train.device import choose_device

from ..engine.estimates import Floats, estimate, exponent, slopes
from ..engine.ladders import sources, train
from ..engine.pieces import Pieces
from ..theory.simulation import setting_of
from .measure import MATRICES, PLACEMENTS, POST, STACKS, Bench, Condition, Figure3Config, corpus_of

Layers = dict[tuple[str, str], Floats]
"""Norms by matrix and stack: (S, L), or (L,) of what is predicted."""
PARTS = [(matrix, stack) for stack in STACKS for matrix in MATRICES]
"""The matrices of every stack, in the order in which claims name them."""
KINDS = ("norm_of_mean", "mean_of_norms", "expected_squared")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPieces:
    """Norms of every model; lists are over seeds."""

    bench: Bench
    layers: dict[str, list[dict[str, Any]]]
    """Norms at initialisation of panels (a) and (b), by placement."""
    last: dict[tuple[Condition, str, int], list[dict[str, Any]]]
    """Norms of panels (c) and (d), by condition, placement and blocks."""
    before: list[dict[str, Any]]
    """Norms of the model that is trained, with its initial weights; empty where none is trained."""
    after: list[dict[str, Any]]
    """Norms of the same after the warm-up."""
    trained_by: dict[str, dict[str, Any]]
    """The source that made each training, by its name."""


def measure(config: Figure3Config, pieces: Pieces) -> ModelPieces:
    """Measures what the folder lacks, the first seed of everything first; the trainings come last.

    Raises UserError for a corpus that is not there, a run folder that holds something else, or a
    training that failed.
    """
    corpus, device = corpus_of(config.corpus, config.toy_pairs), choose_device(config.device)
    cells = _cells(config, pieces)
    bench, layers = Bench(config, corpus, device), config.layers_condition
    found = ModelPieces(
        bench=bench,
        layers={name: [] for name in PLACEMENTS},
        last={},
        before=[],
        after=[],
        trained_by={},
    )
    for seed in range(1, config.seeds + 1):
        pieces.watch("seeds", seed - 1, config.seeds)
        _measure_seed(found, config, pieces, seed)
    pieces.watch("seeds", config.seeds, config.seeds)
    for run in train(cells, "the warm-up", pieces) if cells else ():
        if not run.finite:
            raise UserError(
                f"{run.cell.name}: its loss did not stay finite (log: {run.cell.log_file})"
            )
    found.trained_by.update(sources(cells))
    for cell in cells:
        run_config = translation(cell.config, "figure 3")
        asked = bench.asked_of(run_config, layers) | {
            "trained_by": found.trained_by[cell.name]["source_sha256"]
        }
        name = f"after-warm-up/{cell.arm.placement}_seed-{cell.seed}"
        found.after.append(
            pieces.get(name, asked, bench.after_training, cell.folder.path, layers, cell.seed)
        )
    return found


def _measure_seed(found: ModelPieces, config: Figure3Config, pieces: Pieces, seed: int) -> None:
    bench, layers = found.bench, config.layers_condition

    def piece(
        name: str, placement: str, blocks: int, condition: Condition, **options: Any
    ) -> dict[str, Any]:
        model = config.model(
            placement, blocks, condition.dropout, small=options.pop("small", False)
        )
        asked = bench.asked(model, condition, seed) | options
        return pieces.get(  # type: ignore[no-any-return]
            f"{name}_seed-{seed}", asked, bench.at_start, model, condition, seed, **options
        )

    for placement in PLACEMENTS:
        found.layers[placement].append(
            piece(f"layers/{placement}", placement, config.blocks[0], layers)
        )
    for condition in config.conditions:
        for blocks in config.blocks:
            for placement in PLACEMENTS:
                name = f"last/{placement}_{blocks}-{blocks}_{condition.name}"
                one = piece(name, placement, blocks, condition, last_only=True)
                found.last.setdefault((condition, placement, blocks), []).append(one)
    if config.warm_up_seeds:
        found.before.append(
            piece(f"before-warm-up/{POST}", POST, config.blocks[0], layers, small=True)
        )


def _cells(config: Figure3Config, pieces: Pieces) -> list[Cell]:
    """Returns the trainings, one a seed, in the folder warm-up, laid out as `normscope compare`
    does.
    """
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
    """Holds what the claims are judged by."""

    blocks: tuple[int, ...]
    layers: dict[str, dict[str, Layers]]
    """Norms by placement, then norm_of_mean, mean_of_norms or expected_squared."""
    last: dict[Condition, dict[str, Floats]]
    """The norm of the last W2's gradient, mean over batches, (S, B): by condition and placement."""
    before: dict[str, Layers]
    """The same as `layers`, of the model that is trained, with its initial weights; empty where
    none is trained.
    """
    after: dict[str, Layers]
    predicted_last: Mapping[Condition, Mapping[str, Sequence[float]]]
    """The predicted norm of a batch's gradient of the last W2, by depth, a mean over the batches
    measured: by condition and placement.
    """
    predicted_layers: Mapping[str, Layers]
    """The predicted norms of the gradient averaged over all batches of a seed, layer by layer, of
    the shallowest models: by placement.
    """

    def predicted_exponent(self, condition: Condition, placement: str) -> float:
        """Predicts the exponent of depth, of the last W2's."""
        return float(
            exponent(self.blocks, np.array([self.predicted_last[condition][placement]])).mean
        )

    def predicted_factors(self, placement: str) -> dict[tuple[str, str], float]:
        """Returns the logarithms of the factors from layer to layer."""
        curves = self.predicted_layers[placement]
        return {key: float(factor_per_layer(curve[None]).mean) for key, curve in curves.items()}

    @property
    def left_after_warm_up(self) -> dict[tuple[str, str], Estimate]:
        """(L,) The norm of the mean gradient as a share of what it was before, over the seeds that
        were trained.
        """
        before, after = self.before["norm_of_mean"], self.after["norm_of_mean"]
        return {key: estimate(after[key] / before[key][: len(after[key])]) for key in PARTS}


def _by_kind(pieces: Sequence[dict[str, Any]]) -> dict[str, Layers]:
    if not pieces:
        return {}
    found: dict[str, Layers] = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for matrix, stack in PARTS:
            found[kind][matrix, stack] = np.array([one[matrix][stack][kind] for one in pieces])
    return found


def factor_per_layer(values_SL: Floats) -> Estimate:
    """Fits the logarithm of the factor from layer to layer: a line for each seed, and the mean over
    seeds; 0 is what stays.
    """
    return estimate(slopes(np.arange(values_SL.shape[1]), values_SL))


def without_noise(layers: Mapping[str, Layers], key: tuple[str, str]) -> Floats:
    """(L,) The norm of the expected gradient, mean over seeds: roots of the unbiased squares, 0 for
    those below it.
    """
    norms: Floats = np.sqrt(np.maximum(layers["expected_squared"][key], 0.0)).mean(0)
    return norms


def numbers_of(config: Figure3Config, measured: ModelPieces) -> Figure3Numbers:
    """Returns what was measured, and what theory says of the same models on the same batches; those
    averaged are one batch.
    """
    vocabulary, bench = len(measured.bench.corpus.target.vocabulary), measured.bench

    def settings(condition: Condition, *, averaged: bool) -> list[ModelSetting]:
        model = config.model(POST, config.blocks[0], condition.dropout)
        seeds = [bench.batches(condition, seed) for seed in range(1, config.seeds + 1)]
        groups = seeds if averaged else [[batch] for batches in seeds for batch in batches]
        return [
            setting_of(group, model, vocabulary=vocabulary, label_smoothing=config.label_smoothing)
            for group in groups
        ]

    predicted_last: dict[Condition, dict[str, list[float]]] = {}
    for condition in config.conditions:
        single = settings(condition, averaged=False)
        predicted_last[condition] = {
            placement: _predicted_last(config, placement, single) for placement in PLACEMENTS
        }
    averaged = settings(config.layers_condition, averaged=True)
    predicted_layers: dict[str, Layers] = {placement: {} for placement in PLACEMENTS}
    for placement in PLACEMENTS:
        for matrix, stack in PARTS:
            norms = _mean_prediction(placement, averaged, matrix, stack)
            predicted_layers[placement][matrix, stack] = norms
    return Figure3Numbers(
        blocks=config.blocks,
        layers={placement: _by_kind(pieces) for placement, pieces in measured.layers.items()},
        last=_last_norms(config, measured),
        before=_by_kind(measured.before),
        after=_by_kind(measured.after),
        predicted_last=predicted_last,
        predicted_layers=predicted_layers,
    )


def _last_norms(config: Figure3Config, measured: ModelPieces) -> dict[Condition, dict[str, Floats]]:
    """Returns the norms of the last W₂'s gradient by condition and placement, (S, B)."""
    found: dict[Condition, dict[str, Floats]] = {}
    for condition, placement, _ in measured.last:
        rows = []
        for blocks in config.blocks:
            pieces = measured.last[condition, placement, blocks]
            rows.append([one["W2"]["decoder"]["mean_of_norms"][-1] for one in pieces])
        found.setdefault(condition, {})[placement] = np.array(rows).T
    return found


def _mean_prediction(
    placement: str, asked: Sequence[ModelSetting], matrix: str, stack: str
) -> Floats:
    """Returns the predicted norms of a matrix's gradient over the layers, mean over settings."""
    curves = [predict(placement, one)[stack].gradient_norm[MATRICES[matrix]] for one in asked]
    found: Floats = np.mean([np.asarray(curve, np.float64) for curve in curves], axis=0)
    return found


def _predicted_last(
    config: Figure3Config, placement: str, asked: Sequence[ModelSetting]
) -> list[float]:
    """Returns the predicted norm of the last W₂'s gradient at every depth, mean over settings."""
    norms = []
    for blocks in config.blocks:
        as_deep = [replace(one, blocks=blocks) for one in asked]
        layers = _mean_prediction(placement, as_deep, "W2", "decoder")
        norms.append(float(layers[-1]))
    return norms
