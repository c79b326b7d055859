"""What theory says of figure 3's gradients, before any model is built."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.theory.predict import ModelSetting, predict

from .config import Condition
from .measure import MATRICES, STACKS

Curves = dict[tuple[str, str], NDArray[np.float64]]
"""By matrix and stack, layer by layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Frobenius norms."""

    norm: Curves
    """Of a batch's gradient, mean over the batches."""
    norm_of_mean: Curves
    """Of the gradient averaged over all batches of a seed."""


Predictions = Mapping[tuple[Condition, str, int], Predicted]
"""By condition, placement and blocks of each stack."""


def last_predicted(
    predictions: Predictions, condition: Condition, placement: str, blocks: Sequence[int]
) -> list[float]:
    """Norm of the last W2's gradient, by depth."""
    return [float(predictions[condition, placement, depth].norm["W2", "decoder"][-1]) for depth in blocks]


def predicted(placement: str, single: Sequence[ModelSetting], averaged: Sequence[ModelSetting]) -> Predicted:
    """single: of each batch; the norms are averaged. averaged: of the batches of each seed taken as one, whose gradient
    is about what theirs average to.
    """
    return Predicted(
        norm=_mean([_curves(placement, setting) for setting in single]),
        norm_of_mean=_mean([_curves(placement, setting) for setting in averaged]),
    )


def _curves(placement: str, setting: ModelSetting) -> Curves:
    found = predict(placement, setting)
    return {
        (matrix, stack): np.asarray(found[stack].gradient_norm[name], dtype=np.float64)
        for matrix, name in MATRICES.items()
        for stack in STACKS
    }


def _mean(curves: Sequence[Curves]) -> Curves:
    return {key: np.mean([one[key] for one in curves], axis=0) for key in curves[0]}
