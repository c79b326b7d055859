"""The stacks of the study of appendix F, and what is measured of them: gradient norms, one call a
seed.
"""

# L = blocks

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from normscope.theory.settings import ModelSetting

from ..engine.checks import check_least
from ..theory.simulation import Simulation

W1 = "ffn_in"
W2 = "ffn_out"
V = "value"
LETTERS = {W2: "W₂", W1: "W₁", V: "W_V"}
"""Matrices whose gradients are looked at, with how they are printed."""


def measured(
    placement: str, models: Mapping[str, tuple[ModelSetting, str]], seed: int
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Returns one draw of every model: gradient norms, (L,), by the model's name and the matrix.

    models: by name, each with the stack that is looked at.
    """
    found = {}
    for name, (model, stack) in models.items():
        norms = Simulation(placement, model).draw(seed)[stack].gradient_norm
        found[name] = {matrix: norms[matrix] for matrix in LETTERS}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StackCase:
    """A kind of model, and the stack of it that is looked at."""

    title: str
    stack: Literal["encoder", "decoder", "encoder-decoder"]
    setting: Literal["theory", "paper"] = "theory"
    one_token: bool = False
    """Sequences of one token each, whatever the study's number is."""

    @property
    def looked_at(self) -> str:
        """The stack nearest to the loss, whose gradients need not pass another one."""
        return "encoder" if self.stack == "encoder" else "decoder"

    def model(self, *, blocks: int, width: int, tokens: int, vocabulary: int) -> ModelSetting:
        """The paper's setting has four heads and an inner width of 2d, as `transformer_iwslt_de_en`
        has.
        """
        papers = self.setting == "paper"
        return ModelSetting(
            stack=self.stack,
            setting=self.setting,
            blocks=blocks,
            width=width,
            tokens=1 if self.one_token else tokens,
            vocabulary=vocabulary,
            ffn_width=2 * width if papers else width,
            heads=4 if papers else 1,
        )


CASES = {
    "encoder-1": StackCase(title="one-token encoder", stack="encoder", one_token=True),
    "encoder": StackCase(title="encoder", stack="encoder"),
    "decoder": StackCase(title="decoder without cross-attention", stack="decoder"),
    "crossed": StackCase(title="decoder with cross-attention", stack="encoder-decoder"),
    "paper": StackCase(title="the paper's decoder", stack="encoder-decoder", setting="paper"),
}
"""The cases by a short name for files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendedTheoryConfig:
    """Stacks before any update. Raises ValueError for what cannot be drawn or fitted."""

    encoder_depths: tuple[int, ...] = (6, 12, 24, 48)
    """Blocks of encoders."""
    decoder_depths: tuple[int, ...] = (6, 12, 24)
    """Blocks of decoders, and of the encoders before them."""
    width: int = 512
    seeds: int = 20
    tokens: int = 16
    """The tokens of every sequence, but where one token is studied."""
    vocabulary: int = 4096

    def __post_init__(self) -> None:
        for name in ("encoder_depths", "decoder_depths"):
            depths = getattr(self, name)
            if len(depths) < 2 or depths[0] < 2 or any(a >= b for a, b in pairwise(depths)):
                raise ValueError(
                    f"{name} must be two or more rising numbers from 2 on, got {depths}"
                )
        if self.width % 4 or self.width < 8:
            raise ValueError(
                "width must be a multiple of 4, for the paper's heads, and at least 8, got "
                f"{self.width}"
            )
        check_least(self, seeds=2, tokens=2)
        if self.vocabulary < self.tokens + 2:
            raise ValueError(
                "vocabulary must be at least tokens + 2, for tokens that differ, got "
                f"{self.vocabulary}"
            )

    def depths(self, case: StackCase) -> tuple[int, ...]:
        """Returns the depths of a case's stacks."""
        return self.encoder_depths if case.stack == "encoder" else self.decoder_depths

    @property
    def stacks(self) -> dict[str, tuple[StackCase, ModelSetting]]:
        """The cases at every depth, by a short name for files."""
        sizes = {"width": self.width, "tokens": self.tokens, "vocabulary": self.vocabulary}
        return {
            f"{key}-{depth}": (case, case.model(blocks=depth, **sizes))
            for key, case in CASES.items()
            for depth in self.depths(case)
        }
