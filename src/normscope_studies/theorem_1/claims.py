"""Theorem 1 for each of its two placements: what it claims and what holds, against measured gradients."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from normscope.evidence.estimates import Floats, estimate, exponent, with_interval
from normscope.evidence.judging import Answer, between, lies_within
from normscope.measure import Estimate
from normscope.report.words import number, span
from normscope.theory.predict import ModelSetting, predict

from ..engine.claims import judged
from ..engine.page import Claim
from ..theory import corrected, paper
from .measure import ROWS

EPSILON, DELTA = 0.1, 0.125
"""Section 3.4: squared norms of hidden states were found to be (0.1, 0.125)-bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
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
    "post-ln": Half(
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
    "pre-ln": Half(
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


# S = seeds, X = places of a sweep, Q = sequences


SHORT, LONG = ROWS
"""Rows of length 1, as the theorem needs them, and rows of length √d."""
EXPONENT_WITHIN = 0.1
"""Exponents that are told apart differ by 0.5 or more."""
PREDICTED_WITHIN = 0.1
"""Of 1, for measured / expected; the paper's order is dozens of times what is expected."""


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
    loss_gradients_SXQ: Floats
    """Greatest ‖∂L/∂x‖ among each sequence's positions."""
    predicted_X: Floats
    """For one token in closed form, else by the mean field; NaN where there is neither."""

    @property
    def x(self) -> list[int]:
        return [blocks if self.over == "blocks" else width for blocks, width in self.shapes]

    @property
    def norms_SX(self) -> Floats:
        """Root mean square over sequences; predictions are of its mean over seeds."""
        norms: Floats = np.sqrt(np.square(self.gradients_SXQ).mean(2))
        return norms

    @property
    def mean(self) -> Estimate:
        return estimate(self.norms_SX)

    @property
    def exponent(self) -> Estimate:
        """Over width, or over the deeper half of the depths: orders are for large L."""
        since = len(self.shapes) // 2 if self.over == "blocks" else 0
        return exponent(self.x[since:], self.norms_SX[:, since:])

    @property
    def name(self) -> str:
        return "one token" if self.tokens == 1 else f"{self.tokens} tokens"

    def bounds(self, kind: Literal["paper_order", "paper_bound", "corrected_bound", "one_token"]) -> Floats:
        return np.array([getattr(self.side, kind)(*shape) for shape in self.shapes])

    def exceeding(self, kind: Literal["paper_bound", "corrected_bound"]) -> int:
        """Sequences whose gradient is above the bound, ‖∂L/∂x‖ being what was measured for them."""
        return int((self.gradients_SXQ > self.bounds(kind)[:, None] * self.loss_gradients_SXQ).sum())

    def exceeding_S(self, kind: Literal["paper_bound", "corrected_bound"]) -> Floats:
        """Share of each seed's sequences above the bound."""
        above: Floats = (self.gradients_SXQ > self.bounds(kind)[:, None] * self.loss_gradients_SXQ).mean((1, 2))
        return above

    def slack(self, kind: Literal["paper_order", "paper_bound", "corrected_bound"]) -> tuple[float, float]:
        """Least and greatest of bound / mean over seeds; ‖∂L/∂x‖ is 1 in an order, and measured in a bound."""
        loss_X = 1.0 if kind == "paper_order" else np.sqrt(np.square(self.loss_gradients_SXQ).mean((0, 2)))
        ratios = self.bounds(kind) * loss_X / self.mean.mean
        return float(ratios.min()), float(ratios.max())

    @property
    def ratio(self) -> Estimate:
        """Measured / predicted, (X,)."""
        return estimate(self.norms_SX / self.predicted_X)


def claims(sweeps: Sequence[Sweep]) -> list[Claim]:
    """All claims of the study; `sweeps` holds both placements, both directions and both kinds of rows."""
    found = []
    for side in {id(sweep.side): sweep.side for sweep in sweeps}.values():
        own = [sweep for sweep in sweeps if sweep.side is side and sweep.rows == SHORT]
        deep, wide = ([sweep for sweep in own if sweep.over == over] for over in ("blocks", "width"))
        found += [_bound(side, own), _order(side, wide), _over_depth(side, deep), _right_order(side, wide)]
        found += [_right_bound(side, own), _value(side, own)]
    return [*found, _mean_field(sweeps), _long_rows(sweeps)]


def _bound(side: Half, sweeps: Sequence[Sweep]) -> Claim:
    least = paper.theorem_1_probability(epsilon=EPSILON, delta=DELTA)
    total = sum(sweep.gradients_SXQ.size for sweep in sweeps)
    above = sum(sweep.exceeding("paper_bound") for sweep in sweeps)
    return judged(
        name=f"Theorem 1, {side.title}: the bound",
        statement=f"The gradient of the last W₂ is at most O({side.order_text}) with probability {least:.3f} at least, "
        f"which is 0.99 − δ − ε/(0.9+ε) at the reported (ε, δ) = ({EPSILON}, {DELTA}).",
        source="Xiong et al. 2020, theorem 1; constants from its proof, appendix E",
        found=f"{above} of {total:,} gradients exceed it. {_looseness(sweeps, 'paper_bound', ',.0f')}",
        holds={"all": _seldom(sweeps, "paper_bound", 1 - least)},
    )


def _order(side: Half, wide: Sequence[Sweep]) -> Claim:
    claimed = order_exponent(wide[0])
    low, high = next(sweep for sweep in wide if sweep.tokens == 1).slack("paper_order")
    return judged(
        name=f"Theorem 1, {side.title}: the scale",
        statement=f"“The scale of the gradients to the last FFN layer is of order O({side.order_text})”: over these "
        f"widths d to the power {claimed:.3f}.",
        source="Xiong et al. 2020, after theorem 1",
        found=f"Fitted exponent over the width: {_exponents(wide)}. {side.order_text} itself is {low:.0f} to "
        f"{high:.0f} times the gradient of one token.",
        holds={sweep.name: lies_within(sweep.exponent, claimed, EXPONENT_WITHIN) for sweep in wide},
    )


def order_exponent(sweep: Sweep) -> float:
    """Slope of the claimed order over the width, fitted as the measured one is."""
    return float(exponent(sweep.x, sweep.bounds("paper_order")[None]).mean)


def _over_depth(side: Half, deep: Sequence[Sweep]) -> Claim:
    return judged(
        name=f"Theorem 1, {side.title}: over depth",
        statement=f"The gradient of the last W₂ {side.over_depth_text}.",
        source="Xiong et al. 2020, theorem 1",
        found=f"Fitted exponent over the number of blocks, deeper half: {_exponents(deep)}; "
        f"{number(side.depth_exponent)} is claimed.",
        holds={sweep.name: lies_within(sweep.exponent, side.depth_exponent, EXPONENT_WITHIN) for sweep in deep},
    )


def _right_order(side: Half, wide: Sequence[Sweep]) -> Claim:
    return judged(
        name=f"Corrected, {side.title}: the scale",
        statement=f"One position's gradient has rank one, so the scale is O({side.corrected_order_text}), not "
        f"O({side.order_text}).",
        source="corrected",
        found=f"Fitted exponent over the width: {_exponents(wide)}; 0.5 is expected.",
        holds={sweep.name: lies_within(sweep.exponent, 0.5, EXPONENT_WITHIN) for sweep in wide},
    )


def _right_bound(side: Half, sweeps: Sequence[Sweep]) -> Claim:
    least = {sweep.name: corrected.theorem_1_probability(delta=DELTA, positions=sweep.tokens) for sweep in sweeps}
    above = {name: sum(s.exceeding("corrected_bound") for s in sweeps if s.name == name) for name in least}
    total = {name: sum(s.gradients_SXQ.size for s in sweeps if s.name == name) for name in least}
    stated = "; ".join(f"{p:.3f} for {name}" for name, p in least.items())
    return judged(
        name=f"Corrected, {side.title}: the bound",
        statement="‖∂L/∂x‖ √(d/2 · (1 + √(500/d))) / √((1−ε) q) is exceeded no more often than its probability "
        f"0.99 − nδ leaves room for ({stated}; where that is 0 the bound promises nothing).",
        source="corrected",
        found=f"{sum(above.values())} of {sum(total.values()):,} gradients exceed it. "
        f"{_looseness(sweeps, 'corrected_bound', '.1f')}",
        holds={
            name: _seldom([sweep for sweep in sweeps if sweep.name == name], "corrected_bound", 1 - least[name])
            for name in least
        },
    )


def _value(side: Half, sweeps: Sequence[Sweep]) -> Claim:
    ones = [sweep for sweep in sweeps if sweep.tokens == 1]
    return judged(
        name=f"Corrected, {side.title}: the value",
        statement="For a sequence of one token the expected size is √(d/2) ‖∂L/∂x‖ / √q.",
        source="corrected",
        found=f"Measured / expected is {_ratios(ones)} over all depths and widths, ‖∂L/∂x‖ taken as 1.",
        holds={f"over {s.over}": lies_within(s.ratio, 1.0, PREDICTED_WITHIN) for s in ones},
    )


def _mean_field(sweeps: Sequence[Sweep]) -> Claim:
    several = [sweep for sweep in sweeps if sweep.tokens > 1 and sweep.rows == SHORT]
    return judged(
        name="Prediction: mean over positions",
        statement="The mean-field prediction gives the gradient of a mean over several positions.",
        source="this program's theory",
        found=f"Measured / predicted is {_ratios(several)} for {several[0].name}.",
        holds={f"{s.side.title} over {s.over}": lies_within(s.ratio, 1.0, PREDICTED_WITHIN) for s in several},
    )


def _long_rows(sweeps: Sequence[Sweep]) -> Claim:
    ones = [sweep for sweep in sweeps if sweep.tokens == 1 and sweep.rows == LONG]
    lengths = " to ".join(f"{np.sqrt(np.square(ones[0].loss_gradients_SXQ[:, i]).mean()):.1f}" for i in (0, -1))
    return judged(
        name="Corrected: what “all derivatives are bounded” hides",
        statement="‖∂L/∂x‖ is O(1) only for output rows of length O(1). With rows from N(0, 1) it is about √(2d) "
        f"({saturated_loss_gradient(ones[0].x[-1]):.1f} at d = {ones[0].x[-1]}), and the gradient of order d.",
        source="corrected",
        found=f"Measured ‖∂L/∂x‖ from {lengths} over the widths; exponent of the gradient: "
        + "; ".join(f"{with_interval(s.exponent)} ({s.side.title})" for s in ones)
        + ".",
        holds={s.side.title: lies_within(s.exponent, 1.0, EXPONENT_WITHIN) for s in ones},
    )


def _seldom(sweeps: Sequence[Sweep], kind: Literal["paper_bound", "corrected_bound"], most: float) -> Answer:
    """Whether the share of gradients above the bound is at most that, over seeds: those of one seed share weights."""
    return between(estimate(np.mean([sweep.exceeding_S(kind) for sweep in sweeps], axis=0)), greatest=most)


def _exponents(sweeps: Sequence[Sweep]) -> str:
    return "; ".join(f"{with_interval(sweep.exponent)} for {sweep.name}" for sweep in sweeps)


def _looseness(sweeps: Sequence[Sweep], kind: Literal["paper_bound", "corrected_bound"], digits: str) -> str:
    wide = [(sweep.name, *sweep.slack(kind)) for sweep in sweeps if sweep.over == "width"]
    factors = "; ".join(f"{low:{digits}} to {high:{digits}} times the gradient for {name}" for name, low, high in wide)
    return f"Over the widths it is {factors}."


def _ratios(sweeps: Sequence[Sweep]) -> str:
    return span(np.concatenate([sweep.ratio.mean for sweep in sweeps]).tolist())
