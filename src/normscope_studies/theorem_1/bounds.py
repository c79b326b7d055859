"""Theorem 1 for each of its two placements: what the paper states, what its proof gives, and what is predicted."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from normscope.theory.predict import ModelSetting, predict

from ..theory import corrected, paper

EPSILON, DELTA = 0.1, 0.125
"""Section 3.4: squared norms of hidden states were found to be (0.1, 0.125)-bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One half of the theorem. Functions are of (blocks, width); ‖∂L/∂x‖ is 1 in all of them."""

    placement: str
    title: str
    order_text: str
    corrected_order_text: str
    over_depth_text: str
    depth_exponent: float
    """Of the claimed order over the number of blocks."""
    paper_order: Callable[[int, int], float]
    paper_power: Callable[[int, int], float]
    """E‖x‖² / d of the last norm's input, by Lemma 2 as printed."""
    corrected_power: Callable[[int, int], float]
    """The same, centred, and at its least."""
    one_token_power: Callable[[int, int], float]
    """The same for one token, where it is known exactly."""

    def paper_bound(self, blocks: int, width: int) -> float:
        return paper.last_layer_gradient_bound(width=width, power=self.paper_power(blocks, width))

    def corrected_bound(self, blocks: int, width: int) -> float:
        power = self.corrected_power(blocks, width)
        return corrected.last_layer_gradient_bound(width=width, power=power, epsilon=EPSILON)

    def one_token(self, blocks: int, width: int, loss_gradient_norm: float = 1.0) -> float:
        """√(d/2) ‖∂L/∂x‖ / √q, the expected size for a sequence of one token."""
        power = self.one_token_power(blocks, width)
        return corrected.feed_forward_gradient(width=width, power=power, loss_gradient_norm=loss_gradient_norm)

    def predicted(self, blocks: int, width: int, *, tokens: int, vocabulary: int) -> float:
        """By the mean field: the last block's ffn_out, output rows of length 1."""
        model = ModelSetting(blocks=blocks, width=width, ffn_width=width, tokens=tokens, vocabulary=vocabulary)
        return float(np.asarray(predict(self.placement, model)["encoder"].gradient_norm["ffn_out"])[-1])


def saturated_loss_gradient(width: int) -> float:
    """‖∂L/∂x‖ behind rows from N(0, 1): the softmax picks one row, and two rows differ by √(2d)."""
    return math.sqrt(2 * width)


SIDES = {
    "post-ln": Side(
        placement="post-ln",
        title="Post-LN",
        order_text="d√(ln d)",
        corrected_order_text="√d",
        over_depth_text="is independent of L",
        depth_exponent=0.0,
        paper_order=lambda blocks, width: paper.post_ln_gradient_order(width=width),
        paper_power=lambda blocks, width: paper.post_ln_squared_norm(5, width=width)[0] / width,
        corrected_power=lambda blocks, width: 1.5 - 0.5 / width,
        one_token_power=lambda blocks, width: 1.5 - 0.5 / width,
    ),
    "pre-ln": Side(
        placement="pre-ln",
        title="Pre-LN",
        order_text="d√(ln d / L)",
        corrected_order_text="√(d/L)",
        over_depth_text="falls as 1/√L",
        depth_exponent=-0.5,
        paper_order=lambda blocks, width: paper.pre_ln_gradient_order(width=width, layers=blocks),
        # x_{L+1}, the final norm's input, in the paper's count of layers.
        paper_power=lambda blocks, width: paper.pre_ln_squared_norm(blocks + 1, width=width)[0] / width,
        corrected_power=lambda blocks, width: (1 - 1 / width) * corrected.pre_ln_squared_norm(blocks, width=1)[0],
        one_token_power=lambda blocks, width: (1 - 1 / width) * corrected.pre_ln_stream(blocks, tokens=1)[-1][0],
    ),
}
