"""Figure 3 as arrays over seeds."""

# S = seeds, L = layers of a stack, B = depths

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.evidence.estimates import estimate, slopes
from normscope.measure import Estimate

from .config import Condition
from .measure import MATRICES, STACKS, Norms
from .pieces import Measured

Array = NDArray[np.float64]
Layers = dict[tuple[str, str], Array]
"""By matrix and stack: (S, L)."""
KINDS = ("norm_of_mean", "mean_of_norms", "expected_squared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What the claims are judged by."""

    blocks: tuple[int, ...]
    layers: dict[str, dict[str, Layers]]
    """By placement, then norm_of_mean, mean_of_norms or expected_squared."""
    last: dict[Condition, dict[str, Array]]
    """By condition and placement: (S, B), the norm of the last W2's gradient, mean over batches."""
    before: dict[str, Layers]
    """As `layers`, of the model that is trained, with its initial weights; empty where none is trained."""
    after: dict[str, Layers]


def numbers_of(measured: Measured, blocks: tuple[int, ...]) -> Numbers:
    last: dict[Condition, dict[str, Array]] = {}
    for condition, placement, _ in measured.last:
        rows = [
            [one["W2"]["decoder"]["mean_of_norms"][-1] for one in measured.last[condition, placement, depth]]
            for depth in blocks
        ]
        last.setdefault(condition, {})[placement] = np.array(rows).T
    return Numbers(
        blocks=blocks,
        layers={placement: _by_kind(pieces) for placement, pieces in measured.layers.items()},
        last=last,
        before=_by_kind(measured.before),
        after=_by_kind(measured.after),
    )


def _by_kind(pieces: Sequence[Norms]) -> dict[str, Layers]:
    if not pieces:
        return {}
    return {
        kind: {
            (matrix, stack): np.array([one[matrix][stack][kind] for one in pieces])
            for matrix in MATRICES
            for stack in STACKS
        }
        for kind in KINDS
    }


def factor_per_layer(values_SL: Array) -> Estimate:
    """Of the logarithm, from layer to layer: a line for each seed, and the mean over seeds; 0 is what stays."""
    return estimate(slopes(np.arange(values_SL.shape[1]), values_SL))


def without_noise(layers: Mapping[str, Layers], key: tuple[str, str]) -> Array:
    """(L,) The norm of the expected gradient, mean over seeds: roots of the unbiased squares, 0 for those below it."""
    norms: Array = np.sqrt(np.maximum(layers["expected_squared"][key], 0.0)).mean(0)
    return norms
