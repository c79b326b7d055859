"""The numbers under figure 3."""

import numpy as np

from normscope.evidence.estimates import estimate, exponent

from ..engine.page import StudyTable
from .config import PLACEMENTS, Condition
from .measure import MATRICES, PRINTED, STACKS
from .numbers import Numbers, without_noise
from .prediction import Predictions, last_predicted

Rows = list[list[str | float | None]]


def tables(numbers: Numbers, predictions: Predictions, layers: Condition) -> list[StudyTable]:
    """layers: the condition of panels (a) and (b)."""
    found = [_last_table(numbers, predictions)]
    found += [_layers_table(numbers, predictions, layers, matrix) for matrix in MATRICES]
    return [*found, _warm_up_table(numbers)] if numbers.after else found


def _last_table(numbers: Numbers, predictions: Predictions) -> StudyTable:
    rows: Rows = []
    for condition, by_placement in numbers.last.items():
        for placement, values in by_placement.items():
            slope, found = exponent(numbers.blocks, values), estimate(values)
            theory = np.array([last_predicted(predictions, condition, placement, numbers.blocks)])
            rate = float(exponent(numbers.blocks, theory).mean)
            begin: list[str | float | None] = [PLACEMENTS[placement], condition.title]
            rows += [
                [*begin, "measured", *found.mean.tolist(), float(slope.mean)],
                [*begin, "± (95 %)", *found.half_width.tolist(), float(slope.half_width)],
                [*begin, "predicted", *theory[0].tolist(), rate],
            ]
    depths = [f"{depth}-{depth}" for depth in numbers.blocks]
    columns = ["placement", "batches", "", *depths, "exponent of depth"]
    return StudyTable(title="Gradient norm of the last W₂", columns=columns, rows=rows)


def _layers_table(numbers: Numbers, predictions: Predictions, condition: Condition, matrix: str) -> StudyTable:
    rows: Rows = []
    for placement, title in PLACEMENTS.items():
        kinds = numbers.layers[placement]
        theory = predictions[condition, placement, numbers.blocks[0]].norm_of_mean
        for stack in STACKS:
            key = (matrix, stack)
            mean = estimate(kinds["norm_of_mean"][key])
            noisy = kinds["mean_of_norms"][key].mean(0)
            values = (mean.mean, mean.half_width, without_noise(kinds, key), noisy, theory[key])
            rows += [[title, stack, layer, *map(float, row)] for layer, row in enumerate(zip(*values, strict=True), 1)]
    names = ["norm of mean", "± (95 %)", "noise removed", "mean of norms", "norm of mean, predicted"]
    return StudyTable(title=f"{PRINTED[matrix]} by layer", columns=["placement", "stack", "layer", *names], rows=rows)


def _warm_up_table(numbers: Numbers) -> StudyTable:
    rows: Rows = []
    for key, before in numbers.before["norm_of_mean"].items():
        values = (
            before.mean(0),
            numbers.after["norm_of_mean"][key].mean(0),
            without_noise(numbers.before, key),
            without_noise(numbers.after, key),
        )
        rows += [
            [PRINTED[key[0]], key[1], layer, *map(float, row)] for layer, row in enumerate(zip(*values, strict=True), 1)
        ]
    columns = ["matrix", "stack", "layer", "before", "after", "before, noise removed", "after, noise removed"]
    return StudyTable(
        title="Post-LN before and after the warm-up: norm of the mean gradient", columns=columns, rows=rows
    )
