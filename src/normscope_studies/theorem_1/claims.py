"""Theorem 1 over depth and width: gradients as sweeps beside bound and prediction, and what is
claimed of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.words import number, percentage
from normscope.theory.predict import ModelSetting, predict

from ..engine.claims import around, claim, judged, shown_span
from ..engine.estimates import Floats, estimate, exponent
from ..engine.judging import by_setting, each_between
from ..engine.page import Claim
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

    @property
    def title(self) -> str:
        return named(self.placement).title

    def paper_bound(self, blocks: int, width: int) -> float:
        return paper.last_layer_gradient_bound(width=width, power=self.paper_power(blocks, width))

    def corrected_bound(self, blocks: int, width: int) -> float:
        power = self.corrected_power(blocks, width)
        return corrected.last_layer_gradient_bound(width=width, power=power, epsilon=EPSILON)

    def predicted(
        self, blocks: int, width: int, *, tokens: int, rows: str, vocabulary: int
    ) -> float:
        """In closed form for one token, √(d/2) ‖∂L/∂x‖ / √q, else by the mean field; NaN where
        there is neither.
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
    loss_gradients_SXQ: Floats
    """Greatest ‖∂L/∂x‖ among each sequence's positions."""
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
        """Over width, or over the deeper half of the depths: orders are for large L."""
        since = len(self.shapes) // 2 if self.over == "blocks" else 0
        return exponent(self.x[since:], self.norms_SX[:, since:])

    @property
    def claimed_exponent(self) -> float:
        """Of the paper's order: over the width its slope, fitted as the measured one is."""
        if self.over == "blocks":
            return self.side.depth_exponent
        return float(exponent(self.x, self.bounds("paper_order")[None]).mean)

    @property
    def name(self) -> str:
        return "one token" if self.tokens == 1 else f"{self.tokens} tokens"

    def bounds(self, kind: str) -> Floats:
        """kind: paper_order, paper_bound or corrected_bound."""
        return np.array([getattr(self.side, kind)(*shape) for shape in self.shapes])

    def above_SXQ(self, kind: str) -> NDArray[np.bool_]:
        """Which gradients are above the bound, ‖∂L/∂x‖ being what was measured for them."""
        return np.asarray(self.gradients_SXQ > self.bounds(kind)[:, None] * self.loss_gradients_SXQ)

    def slack(self, kind: str) -> tuple[float, float]:
        """Least and greatest of bound / mean over seeds; ‖∂L/∂x‖ is 1 in an order, and measured in
        a bound.
        """
        ratios = (
            self.bounds(kind)
            * (1.0 if kind == "paper_order" else self.loss_gradients_X)
            / self.mean.mean
        )
        return float(ratios.min()), float(ratios.max())

    @property
    def ratio(self) -> Estimate:
        """Measured / predicted, (X,)."""
        return estimate(self.norms_SX / self.predicted_X)


EXPONENT_WITHIN = 0.1
"""Exponents that are told apart differ by 0.5 or more."""
MUCH_SMALLER = 0.5
"""A share that is called so."""
PREDICTED_WITHIN = 0.1
"""Of 1, for measured / expected; the paper's order is dozens of times what is expected."""


def claims(sweeps: Sequence[Sweep]) -> list[Claim]:
    """All claims of the study; `sweeps` holds both placements, both directions and both kinds of
    rows.
    """
    short = [sweep for sweep in sweeps if sweep.rows == SHORT]
    sides = {id(sweep.side): sweep.side for sweep in sweeps}.values()
    long = {s.side.title: s for s in sweeps if s.tokens == 1 and s.rows == LONG}
    first = next(iter(long.values()))
    width = first.x[-1]
    ends = " to ".join(f"{norm:.1f}" for norm in first.loss_gradients_X[[0, -1]])
    of_sides: list[Claim] = []
    for side in sides:
        of_sides += _of_side(side, [sweep for sweep in short if sweep.side is side])
    return [
        *of_sides,
        _much_smaller([sweep for sweep in short if sweep.over == "blocks"]),
        claim(
            "Prediction: mean over positions",
            "The mean-field prediction gives the gradient of a mean over several positions, within "
            f"{percentage(PREDICTED_WITHIN, 0)}.",
            source="this program's theory",
            value="measured / predicted",
            holds={f"{s.side.title} over {s.over}": s.ratio for s in short if s.tokens > 1},
            **around(1.0, PREDICTED_WITHIN),
            shown=shown_span,
        ),
        claim(
            "Corrected: what “all derivatives are bounded” hides",
            "‖∂L/∂x‖ is O(1) only for output rows of length O(1). With rows from N(0, 1) it is "
            f"about √(2d) ({saturated_loss_gradient(width):.1f} at d = {width}), and the gradient "
            f"of order d: an exponent of 1 within {EXPONENT_WITHIN:g}.",
            source="corrected",
            value="fitted exponent of the gradient over the width",
            holds={title: sweep.exponent for title, sweep in long.items()},
            **around(1.0, EXPONENT_WITHIN),
            beside=f"Measured ‖∂L/∂x‖ goes from {ends} over the widths.",
        ),
    ]


def _much_smaller(deep: Sequence[Sweep]) -> Claim:
    """Pre-LN's gradient over Post-LN's of the same seed, at every depth."""
    post, pre = (
        {sweep.name: sweep for sweep in deep if sweep.side is side} for side in SIDES.values()
    )
    shares = {name: estimate(sweep.norms_SX / post[name].norms_SX) for name, sweep in pre.items()}
    answers = {
        name: zip(pre[name].x, each_between(one, 0, MUCH_SMALLER), strict=True)
        for name, one in shares.items()
    }
    ends = (
        f"{name} {' to '.join(number(one.mean[end]) for end in (0, -1))}"
        for name, one in shares.items()
    )
    return judged(
        name="Theorem 1, Pre-LN beside Post-LN",
        statement=(
            "“For the Pre-LN Transformer, the scale of the gradients is much smaller”: that of the "
            f"last W₂ is less than {MUCH_SMALLER:g} of Post-LN's."
        ),
        source="Xiong et al. 2020, after theorem 1",
        found=f"Pre-LN's over Post-LN's from {deep[0].x[0]} blocks to {deep[0].x[-1]}: "
        f"{'; '.join(ends)}.",
        holds=by_setting(
            {(name, at): answer for name, some in answers.items() for at, answer in some}, "blocks"
        ),
    )


def _of_side(side: Half, sweeps: Sequence[Sweep]) -> list[Claim]:
    """As the paper has it, then as it holds."""
    return [*_as_stated(side, sweeps), *_as_corrected(side, sweeps)]


def _by_name(sweeps: Sequence[Sweep], over: str) -> dict[str, Sweep]:
    return {sweep.name: sweep for sweep in sweeps if sweep.over == over}


def _as_stated(side: Half, sweeps: Sequence[Sweep]) -> list[Claim]:
    """Bound, scale and dependence on depth as the paper has them."""
    deep, wide = _by_name(sweeps, "blocks"), _by_name(sweeps, "width")
    chance = paper.theorem_1_probability(epsilon=EPSILON, delta=DELTA)
    (of_one_token,) = (sweep for sweep in wide.values() if sweep.tokens == 1)
    order = of_one_token.claimed_exponent
    low, high = of_one_token.slack("paper_order")
    return [
        claim(
            f"Theorem 1, {side.title}: the bound",
            f"The gradient of the last W₂ is at most O({side.order_text}) with probability "
            f"{chance:.3f} at least, which is 0.99 − δ − ε/(0.9+ε) at the reported (ε, δ) = "
            f"({EPSILON}, {DELTA}).",
            source="Xiong et al. 2020, theorem 1; constants from its proof, appendix E",
            value="share of gradients above it",
            holds={"all": _above(sweeps, "paper_bound")},
            greatest=1 - chance,
            beside=_looseness(wide, "paper_bound", ",.0f"),
        ),
        claim(
            f"Theorem 1, {side.title}: the scale",
            f"“The scale of the gradients to the last FFN layer is of order O({side.order_text})”: "
            f"over these widths d to the power {order:.3f}, within {EXPONENT_WITHIN:g}.",
            source="Xiong et al. 2020, after theorem 1",
            value="fitted exponent over the width",
            holds={name: sweep.exponent for name, sweep in wide.items()},
            **around(order, EXPONENT_WITHIN),
            beside=f"{side.order_text} itself is {low:.0f} to {high:.0f} times the gradient of one "
            "token.",
        ),
        claim(
            f"Theorem 1, {side.title}: over depth",
            f"The gradient of the last W₂ {side.over_depth_text}: an exponent of "
            f"{side.depth_exponent:g} within {EXPONENT_WITHIN:g}.",
            source="Xiong et al. 2020, theorem 1",
            value=(
                f"fitted exponent over the number of blocks, deeper half, {side.depth_exponent:g} "
                "being claimed"
            ),
            holds={name: sweep.exponent for name, sweep in deep.items()},
            **around(side.depth_exponent, EXPONENT_WITHIN),
        ),
    ]


def _as_corrected(side: Half, sweeps: Sequence[Sweep]) -> list[Claim]:
    """Scale, bound and value as they hold."""
    deep, wide = _by_name(sweeps, "blocks"), _by_name(sweeps, "width")
    chances = {
        name: corrected.theorem_1_probability(delta=DELTA, positions=sweep.tokens)
        for name, sweep in wide.items()
    }
    promised = "; ".join(f"{chance:.3f} for {name}" for name, chance in chances.items())
    ones = {f"over {sweep.over}": sweep for sweep in sweeps if sweep.tokens == 1}
    return [
        claim(
            f"Corrected, {side.title}: the scale",
            "One position's gradient has rank one, so the scale is "
            f"O({side.corrected_order_text}), not O({side.order_text}): an exponent of 0.5 within "
            f"{EXPONENT_WITHIN:g}.",
            source="corrected",
            value="fitted exponent over the width, 0.5 being expected",
            holds={name: sweep.exponent for name, sweep in wide.items()},
            **around(0.5, EXPONENT_WITHIN),
        ),
        claim(
            f"Corrected, {side.title}: the bound",
            "‖∂L/∂x‖ √(d/2 · (1 + √(500/d))) / √((1−ε) q) is exceeded no more often than its "
            f"probability 0.99 − nδ leaves room for ({promised}; where that is 0 the bound "
            "promises nothing).",
            source="corrected",
            value="share of gradients above it",
            holds={name: _above([wide[name], deep[name]], "corrected_bound") for name in wide},
            greatest={name: 1 - p for name, p in chances.items()},
            beside=_looseness(wide, "corrected_bound", ".1f"),
        ),
        claim(
            f"Corrected, {side.title}: the value",
            "For a sequence of one token the expected size is √(d/2) ‖∂L/∂x‖ / √q, within "
            f"{percentage(PREDICTED_WITHIN, 0)}.",
            source="corrected",
            value="measured / expected, ‖∂L/∂x‖ taken as 1",
            holds={name: sweep.ratio for name, sweep in ones.items()},
            **around(1.0, PREDICTED_WITHIN),
            shown=shown_span,
        ),
    ]


def _above(sweeps: Sequence[Sweep], kind: str) -> Estimate:
    """Share of gradients above the bound, over seeds: those of one seed share weights."""
    return estimate(np.mean([sweep.above_SXQ(kind).mean((1, 2)) for sweep in sweeps], axis=0))


def _looseness(wide: Mapping[str, Sweep], kind: str, digits: str) -> str:
    factors = {name: sweep.slack(kind) for name, sweep in wide.items()}
    texts = (
        f"{low:{digits}} to {high:{digits}} times the gradient for {name}"
        for name, (low, high) in factors.items()
    )
    return f"Over the widths it is {'; '.join(texts)}."
