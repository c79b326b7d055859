"""Gradients of the last W₂ over depth and width, beside the bound, the order and the prediction of
their half of theorem 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from normscope.measure import Estimate
from normscope.placement import named
from normscope.theory.predict import ModelSetting, predict

from ..engine.estimates import Floats, estimate, exponent
from ..theory import corrected, paper
from .measure import ROWS

SHORT, LONG = ROWS
"""Rows of length 1, as the theorem needs them, and rows of length √d."""
EPSILON, DELTA = 0.1, 0.125
"""Section 3.4: squared norms of hidden states were found to be (0.1, 0.125)-bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One half of the theorem. Functions are of (blocks, width); ‖∂L/∂x‖ is 1 in all of them."""

    placement: str
    order_text: str
    corrected_order_text: str
    element_text: str
    """The order of one element's square."""
    element_equation: str
    """The equation of the proof, which has it."""
    tail_equations: str
    """The equations that bound how often ‖x‖² of the last norm's input falls far below its mean."""
    over_depth_text: str
    depth_exponent: float
    """The exponent of the claimed order over the number of blocks."""
    paper_order: Callable[[int, int], float]
    paper_power: Callable[[int, int], float]
    """E‖x‖² / d of the last norm's input, by Lemma 2 as printed."""
    corrected_power: Callable[[int, int], float]
    """The same, centred, and at its least."""
    one_token_power: Callable[[int, int], float]
    """The same for one token, where it is known exactly."""

    @property
    def title(self) -> str:
        return named(self.placement).title

    def paper_bound(self, blocks: int, width: int) -> float:
        return paper.last_layer_gradient_bound(width=width, power=self.paper_power(blocks, width))

    def element_bound(self, blocks: int, width: int) -> float:
        """Returns the bound on the size of one element, eq. (46) and (56): the paper's bound counts
        it d² times.
        """
        return self.paper_bound(blocks, width) / width

    def corrected_bound(self, blocks: int, width: int) -> float:
        power = self.corrected_power(blocks, width)
        return corrected.last_layer_gradient_bound(width=width, power=power, epsilon=EPSILON)

    def predicted(
        self, blocks: int, width: int, *, tokens: int, rows: str, vocabulary: int
    ) -> float:
        """Predicts in closed form for one token, √(d/2) ‖∂L/∂x‖ / √q, else by the mean field; NaN
        where there is neither.
        """
        if tokens == 1:
            loss_gradient_norm = 1.0 if rows == SHORT else saturated_loss_gradient(width)
            power = self.one_token_power(blocks, width)
            return corrected.feed_forward_gradient(
                width=width, power=power, loss_gradient_norm=loss_gradient_norm
            )
        if rows == LONG:
            # Positions that are alike are all taken for the same word.
            return math.nan
        model = ModelSetting(
            blocks=blocks, width=width, ffn_width=width, tokens=tokens, vocabulary=vocabulary
        )
        return float(
            np.asarray(predict(self.placement, model)["encoder"].gradient_norm["ffn_out"])[-1]
        )


def saturated_loss_gradient(width: int) -> float:
    """‖∂L/∂x‖ behind rows from N(0, 1): the softmax picks one row, and two rows differ by √(2d)."""
    return math.sqrt(2 * width)


SIDES = {
    "post-ln": Half(
        placement="post-ln",
        order_text="d√(ln d)",
        corrected_order_text="√d",
        element_text="ln d / α₀",
        element_equation="46",
        tail_equations="41) to (44",
        over_depth_text="is independent of L",
        depth_exponent=0.0,
        paper_order=lambda blocks, width: paper.post_ln_gradient_order(width=width),
        paper_power=lambda blocks, width: paper.post_ln_squared_norm(5, width=width)[0] / width,
        corrected_power=lambda blocks, width: 1.5 - 0.5 / width,
        one_token_power=lambda blocks, width: 1.5 - 0.5 / width,
    ),
    "pre-ln": Half(
        placement="pre-ln",
        order_text="d√(ln d / L)",
        corrected_order_text="√(d/L)",
        element_text="ln d / (α₀ L)",
        element_equation="56",
        tail_equations="52) to (55",
        over_depth_text="falls as 1/√L",
        depth_exponent=-0.5,
        paper_order=lambda blocks, width: paper.pre_ln_gradient_order(width=width, layers=blocks),
        # x_{L+1}, the final norm's input, in the paper's count of layers.
        paper_power=lambda blocks, width: (
            paper.pre_ln_squared_norm(blocks + 1, width=width)[0] / width
        ),
        corrected_power=lambda blocks, width: (
            (1 - 1 / width) * corrected.pre_ln_squared_norm(blocks, width=1)[0]
        ),
        one_token_power=lambda blocks, width: (
            (1 - 1 / width) * corrected.pre_ln_stream(blocks, tokens=1)[-1][0]
        ),
    ),
}


# S = seeds, X = places of a sweep, Q = sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Gradients of the last W₂ of one placement over depth or width."""

    side: Half
    over: Literal["blocks", "width"]
    tokens: int
    rows: str
    shapes: Sequence[tuple[int, int]]
    """(blocks, width), (X,)."""
    gradients_SXQ: Floats
    elements_SXQ: Floats
    """The largest size of an element of each gradient."""
    loss_gradients_SXQ: Floats
    """Greatest ‖∂L/∂x‖ among each sequence's positions."""
    least_powers_SXQ: Floats
    """‖x‖² / d of what the last norm reads, at the position of a sequence where it is least."""
    mean_powers_SXQ: Floats
    """The same as a mean over positions."""
    predicted_X: Floats

    @property
    def x(self) -> list[int]:
        return [blocks if self.over == "blocks" else width for blocks, width in self.shapes]

    @property
    def norms_SX(self) -> Floats:
        """Root mean square over sequences; predictions are of its mean over seeds."""
        return np.asarray(np.sqrt(np.square(self.gradients_SXQ).mean(2)))

    @property
    def loss_gradients_X(self) -> Floats:
        """Root mean square over seeds and sequences."""
        return np.asarray(np.sqrt(np.square(self.loss_gradients_SXQ).mean((0, 2))))

    @property
    def mean(self) -> Estimate:
        return estimate(self.norms_SX)

    @property
    def exponent(self) -> Estimate:
        """The exponent over width, or over the deeper half of the depths: orders are for large
        L.
        """
        since = len(self.shapes) // 2 if self.over == "blocks" else 0
        return exponent(self.x[since:], self.norms_SX[:, since:])

    @property
    def claimed_exponent(self) -> float:
        """The exponent of the paper's order: over the width its slope, fitted as the measured one
        is.
        """
        if self.over == "blocks":
            return self.side.depth_exponent
        return float(exponent(self.x, self.bounds("paper_order")[None]).mean)

    @property
    def name(self) -> str:
        return "one token" if self.tokens == 1 else f"{self.tokens} tokens"

    def bounds(self, kind: str) -> Floats:
        """kind: paper_order, paper_bound, element_bound or corrected_bound."""
        return np.array([getattr(self.side, kind)(*shape) for shape in self.shapes])

    def above_SXQ(self, kind: str) -> NDArray[np.bool_]:
        """Tells which gradients are above the bound, ‖∂L/∂x‖ being what was measured for them."""
        bounds_SXQ = self.bounds(kind)[:, None] * self.loss_gradients_SXQ
        return np.asarray(self._bounded_SXQ(kind) > bounds_SXQ)

    def slack(self, kind: str) -> tuple[float, float]:
        """Returns the least and greatest of bound / mean over seeds; ‖∂L/∂x‖ is 1 in an order, and
        measured in a bound.
        """
        loss_gradients_X = 1.0 if kind == "paper_order" else self.loss_gradients_X
        found_X = np.sqrt(np.square(self._bounded_SXQ(kind)).mean(2)).mean(0)
        ratios = self.bounds(kind) * loss_gradients_X / found_X
        return float(ratios.min()), float(ratios.max())

    def _bounded_SXQ(self, kind: str) -> Floats:
        return self.elements_SXQ if kind == "element_bound" else self.gradients_SXQ

    @property
    def least_shares_SXQ(self) -> Floats:
        """‖x‖² of what the last norm reads over its mean, at the position where it is least; the
        mean is that of all seeds, sequences and positions of one model.
        """
        return np.asarray(self.least_powers_SXQ / self.mean_powers_SXQ.mean((0, 2))[:, None])

    @property
    def ratio(self) -> Estimate:
        """Measured / predicted, (X,)."""
        return estimate(self.norms_SX / self.predicted_X)
