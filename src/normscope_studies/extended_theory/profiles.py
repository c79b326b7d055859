"""Gradients of every layer's matrices, by block: the stacks they are measured in, and curves over draws."""

# S = seeds, L = blocks

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from normscope.evidence.estimates import Floats, estimate, slopes
from normscope.measure import Estimate
from normscope.theory.predict import predict
from normscope.theory.settings import ModelSetting, StackKind

from ..theory import corrected
from .measure import LETTERS, W2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
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
    "encoder-1": Case(title="one-token encoder", stack="encoder", one_token=True),
    "encoder": Case(title="encoder", stack="encoder"),
    "decoder": Case(title="decoder without cross-attention", stack="decoder"),
    "crossed": Case(title="decoder with cross-attention", stack="encoder-decoder"),
    "paper": Case(title="the paper's decoder", stack="encoder-decoder", setting="paper"),
}
"""By a short name for files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Gradient norms over the blocks of one stack, from the first block to the last."""

    placement: str
    case: Case
    model: ModelSetting
    norms_SL: Mapping[str, Floats]
    """By matrix: root mean square over a draw's sequences of the gradient's Frobenius norm."""
    predicted_L: Mapping[str, Floats]
    cross_share: float
    """The power that cross-attention is predicted to add, per unit of power of a norm's output; 0 without any."""

    @property
    def blocks(self) -> int:
        return self.model.blocks

    def slope(self, name: str = W2) -> Estimate:
        """Of ln ‖∂L/∂W‖ over the block, per block: positive where gradients decay towards the bottom."""
        return estimate(slopes(np.arange(self.blocks), self.norms_SL[name]))

    @property
    def relative(self) -> Estimate:
        """‖∂L/∂W₂‖ of each block over that of the last, (L,)."""
        norms_SL = self.norms_SL[W2]
        return estimate(norms_SL / norms_SL[:, -1:])

    @property
    def over_predicted(self) -> Estimate:
        """Measured / predicted ‖∂L/∂W₂‖, (L,)."""
        return estimate(self.norms_SL[W2] / self.predicted_L[W2])


def profile(placement: str, case: Case, model: ModelSetting, norms_SL: Mapping[str, Floats]) -> Profile:
    """The measured curves with what is predicted for them."""
    predictions = predict(placement, model)
    looked_at = predictions[case.looked_at]
    return Profile(
        placement=placement,
        case=case,
        model=model,
        norms_SL=norms_SL,
        predicted_L={name: np.asarray(looked_at.gradient_norm[name], dtype=np.float64) for name in LETTERS},
        cross_share=0.0 if model.stack != "encoder-decoder" else _cross_share(case, model, predictions["encoder"]),
    )


def _cross_share(case: Case, model: ModelSetting, encoder: Any) -> float:
    """Of the memory's tokens, that are normalised: a (1 + (n-1) ρ) / n, ρ their cosine."""
    rho = float(np.asarray(encoder.p)[-1] / np.asarray(encoder.q)[-1])
    gain = {"theory": corrected.PAPER_SHARES, "paper": corrected.FAIRSEQ_SHARES}[case.setting].attention
    return gain * corrected.uniform_attention_share(rho, tokens=model.tokens)
