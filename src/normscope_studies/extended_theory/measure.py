"""The stacks of the study of appendix F, and what is measured of them: gradient norms, one call a seed."""

# L = blocks

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from normscope.theory.settings import ModelSetting, StackKind

from ..theory.simulation import simulate

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StackCase:
    """A kind of model, and the stack of it that is looked at."""

    title: str
    stack: StackKind
    setting: Literal["theory", "paper"] = "theory"
    one_token: bool = False
    """Sequences of one token each, whatever the study's number is."""

    @property
    def looked_at(self) -> str:
        """The stack nearest to the loss, whose gradients need not pass another one."""
        return "encoder" if self.stack == "encoder" else "decoder"

    def model(self, *, blocks: int, width: int, tokens: int, vocabulary: int) -> ModelSetting:
        """The paper's setting has four heads and an inner width of 2d, as `transformer_iwslt_de_en` has."""
        sizes: dict[str, Any] = {
            "theory": {"ffn_width": width, "heads": 1},
            "paper": {"ffn_width": 2 * width, "heads": 4},
        }
        return ModelSetting(
            stack=self.stack,
            setting=self.setting,
            blocks=blocks,
            width=width,
            tokens=1 if self.one_token else tokens,
            vocabulary=vocabulary,
            **sizes[self.setting],
        )


CASES = {
    "encoder-1": StackCase(title="one-token encoder", stack="encoder", one_token=True),
    "encoder": StackCase(title="encoder", stack="encoder"),
    "decoder": StackCase(title="decoder without cross-attention", stack="decoder"),
    "crossed": StackCase(title="decoder with cross-attention", stack="encoder-decoder"),
    "paper": StackCase(title="the paper's decoder", stack="encoder-decoder", setting="paper"),
}
"""By a short name for files."""
