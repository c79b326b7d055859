"""What the study of appendix F measures: gradients of every layer's matrices, plain numbers out."""

# L = blocks

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from normscope.theory.settings import ModelSetting

from ..settings.simulation import simulate

W1, W2, V = "ffn_in", "ffn_out", "value"
LETTERS = {W2: "W₂", W1: "W₁", V: "W_V"}
"""Matrices whose gradients are looked at, with how they are printed."""


def measured(
    placement: str, models: Mapping[str, tuple[ModelSetting, str]], seed: int
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """One draw of every model: gradient norms, (L,), by the model's name and the matrix.

    models: by name, each with the stack that is looked at.
    """
    found = {}
    for name, (model, stack) in models.items():
        norms = simulate(placement, model, 1, seed)[stack].gradient_norm
        found[name] = {matrix: norms[matrix] for matrix in LETTERS}
    return found
