"""What the study of Theorem 1 says of its sweeps, each verdict computed."""

from collections.abc import Mapping, Sequence

import numpy as np

from normscope.evidence.estimates import estimate
from normscope.measure import Estimate
from normscope.report.words import percentage

from ..engine.claims import around, claim, shown_span
from ..engine.page import Claim
from ..theory import corrected, paper
from .sweeps import DELTA, EPSILON, LONG, SHORT, Half, Sweep, saturated_loss_gradient

EXPONENT_WITHIN = 0.1
"""Exponents that are told apart differ by 0.5 or more."""
PREDICTED_WITHIN = 0.1
"""Of 1, for measured / expected; the paper's order is dozens of times what is expected."""


def claims(sweeps: Sequence[Sweep]) -> list[Claim]:
    """All claims of the study; `sweeps` holds both placements, both directions and both kinds of rows."""
    short = [sweep for sweep in sweeps if sweep.rows == SHORT]
    sides = {id(sweep.side): sweep.side for sweep in sweeps}.values()
    long = {s.side.title: s for s in sweeps if s.tokens == 1 and s.rows == LONG}
    first = next(iter(long.values()))
    width, ends = first.x[-1], " to ".join(f"{norm:.1f}" for norm in first.loss_gradients_X[[0, -1]])
    return [
        *(one for side in sides for one in _of_side(side, [sweep for sweep in short if sweep.side is side])),
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
            "‖∂L/∂x‖ is O(1) only for output rows of length O(1). With rows from N(0, 1) it is about √(2d) "
            f"({saturated_loss_gradient(width):.1f} at d = {width}), and the gradient of order d: an exponent of 1 "
            f"within {EXPONENT_WITHIN:g}.",
            source="corrected",
            value="fitted exponent of the gradient over the width",
            holds={title: sweep.exponent for title, sweep in long.items()},
            **around(1.0, EXPONENT_WITHIN),
            beside=f"Measured ‖∂L/∂x‖ goes from {ends} over the widths.",
        ),
    ]


def _of_side(side: Half, sweeps: Sequence[Sweep]) -> list[Claim]:
    """Bound, scale and dependence on depth as the paper has them; then scale, bound and value as they hold."""
    deep, wide = ({sweep.name: sweep for sweep in sweeps if sweep.over == over} for over in ("blocks", "width"))
    ones = {f"over {sweep.over}": sweep for sweep in sweeps if sweep.tokens == 1}
    chance = paper.theorem_1_probability(epsilon=EPSILON, delta=DELTA)
    chances = {
        name: corrected.theorem_1_probability(delta=DELTA, positions=sweep.tokens) for name, sweep in wide.items()
    }
    order, (low, high) = ones["over width"].claimed_exponent, ones["over width"].slack("paper_order")
    exponents = {name: sweep.exponent for name, sweep in wide.items()}
    return [
        claim(
            f"Theorem 1, {side.title}: the bound",
            f"The gradient of the last W₂ is at most O({side.order_text}) with probability {chance:.3f} at least, "
            f"which is 0.99 − δ − ε/(0.9+ε) at the reported (ε, δ) = ({EPSILON}, {DELTA}).",
            source="Xiong et al. 2020, theorem 1; constants from its proof, appendix E",
            value="share of gradients above it",
            holds={"all": _above(sweeps, "paper_bound")},
            greatest=1 - chance,
            beside=_looseness(wide, "paper_bound", ",.0f"),
        ),
        claim(
            f"Theorem 1, {side.title}: the scale",
            f"“The scale of the gradients to the last FFN layer is of order O({side.order_text})”: over these "
            f"widths d to the power {order:.3f}, within {EXPONENT_WITHIN:g}.",
            source="Xiong et al. 2020, after theorem 1",
            value="fitted exponent over the width",
            holds=exponents,
            **around(order, EXPONENT_WITHIN),
            beside=f"{side.order_text} itself is {low:.0f} to {high:.0f} times the gradient of one token.",
        ),
        claim(
            f"Theorem 1, {side.title}: over depth",
            f"The gradient of the last W₂ {side.over_depth_text}: an exponent of {side.depth_exponent:g} within "
            f"{EXPONENT_WITHIN:g}.",
            source="Xiong et al. 2020, theorem 1",
            value=f"fitted exponent over the number of blocks, deeper half, {side.depth_exponent:g} being claimed",
            holds={name: sweep.exponent for name, sweep in deep.items()},
            **around(side.depth_exponent, EXPONENT_WITHIN),
        ),
        claim(
            f"Corrected, {side.title}: the scale",
            f"One position's gradient has rank one, so the scale is O({side.corrected_order_text}), not "
            f"O({side.order_text}): an exponent of 0.5 within {EXPONENT_WITHIN:g}.",
            source="corrected",
            value="fitted exponent over the width, 0.5 being expected",
            holds=exponents,
            **around(0.5, EXPONENT_WITHIN),
        ),
        claim(
            f"Corrected, {side.title}: the bound",
            "‖∂L/∂x‖ √(d/2 · (1 + √(500/d))) / √((1−ε) q) is exceeded no more often than its probability 0.99 − nδ "
            f"leaves room for ({'; '.join(f'{p:.3f} for {name}' for name, p in chances.items())}; where that is 0 the "
            "bound promises nothing).",
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
        f"{low:{digits}} to {high:{digits}} times the gradient for {name}" for name, (low, high) in factors.items()
    )
    return f"Over the widths it is {'; '.join(texts)}."
