"""Judges what theorem 1 and steps of its proof claim of the last W₂'s gradient, and what is
corrected.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from normscope.measure import Estimate
from normscope.report.words import number, percentage

from ..engine.claims import around, claim, judged, shown_span
from ..engine.estimates import estimate
from ..engine.judging import by_setting, each_between
from ..engine.page import Claim
from ..theory import corrected, paper
from .sweeps import DELTA, EPSILON, LONG, SHORT, SIDES, Half, Sweep, saturated_loss_gradient

EXPONENT_WITHIN = 0.1
"""Exponents that are told apart differ by 0.5 or more."""
MUCH_SMALLER = 0.5
"""A share that is called so."""
PREDICTED_WITHIN = 0.1
"""The tolerance around 1 of measured / expected; the paper's order is dozens of times what is
expected.
"""


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


def _sweeps_of(sweeps: Sequence[Sweep], side: Half) -> dict[str, Sweep]:
    return {sweep.name: sweep for sweep in sweeps if sweep.side is side}


def _much_smaller(deep: Sequence[Sweep]) -> Claim:
    """Pre-LN's gradient over Post-LN's of the same seed, at every depth."""
    post, pre = (_sweeps_of(deep, side) for side in SIDES.values())
    shares = {name: estimate(sweep.norms_SX / post[name].norms_SX) for name, sweep in pre.items()}
    answers = {
        name: zip(pre[name].x, each_between(one, 0, MUCH_SMALLER), strict=True)
        for name, one in shares.items()
    }
    ends = [
        f"{name} {number(one.mean[0])} to {number(one.mean[-1])}" for name, one in shares.items()
    ]
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
    """Bound, scale and dependence on depth as the paper has them, and two steps of its proof; then
    scale, bound and value as they hold.
    """
    deep, wide = _by_name(sweeps, "blocks"), _by_name(sweeps, "width")
    return [
        _bound(side, sweeps, wide),
        *_scale(side, deep, wide),
        _each_element(side, sweeps, wide),
        _lower_tail(side, sweeps),
        *_corrected(side, deep, wide),
    ]


def _by_name(sweeps: Sequence[Sweep], over: str) -> dict[str, Sweep]:
    return {sweep.name: sweep for sweep in sweeps if sweep.over == over}


def _bound(side: Half, sweeps: Sequence[Sweep], wide: Mapping[str, Sweep]) -> Claim:
    chance = paper.theorem_1_probability(epsilon=EPSILON, delta=DELTA)
    return claim(
        f"Theorem 1, {side.title}: the bound",
        f"The gradient of the last W₂ is at most O({side.order_text}) with probability "
        f"{chance:.3f} at least, which is 0.99 − δ − ε/(0.9+ε) at the reported (ε, δ) = "
        f"({EPSILON}, {DELTA}).",
        source="Xiong et al. 2020, theorem 1; constants from its proof, appendix E",
        value="share of gradients above it",
        holds={"all": _above(sweeps, "paper_bound")},
        greatest=1 - chance,
        beside=_looseness(wide, "paper_bound", ",.0f"),
        slack=_least_slack(wide, "paper_bound"),
    )


def _scale(side: Half, deep: Mapping[str, Sweep], wide: Mapping[str, Sweep]) -> list[Claim]:
    """Makes the claims over the width, and over the depth."""
    one = next(sweep for sweep in wide.values() if sweep.tokens == 1)
    order = one.claimed_exponent
    low, high = one.slack("paper_order")
    return [
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


def _each_element(side: Half, sweeps: Sequence[Sweep], wide: Mapping[str, Sweep]) -> Claim:
    """Judges what the proof bounds before it sums the squares of all d² elements."""
    chance = paper.theorem_1_probability(epsilon=EPSILON, delta=DELTA)
    return claim(
        f"Theorem 1, {side.title}: each element",
        f"No element of the gradient of the last W₂ is larger than O(√({side.element_text})), with "
        f"probability {chance:.3f} at least.",
        source=f"Xiong et al. 2020, appendix E, eq. ({side.element_equation}), with the constants "
        "of its proof",
        value="share of gradients with an element above it",
        holds={"all": _above(sweeps, "element_bound")},
        greatest=1 - chance,
        beside=_looseness(wide, "element_bound", ",.0f", of="the largest element's size"),
        slack=_least_slack(wide, "element_bound"),
    )


def _lower_tail(side: Half, sweeps: Sequence[Sweep]) -> Claim:
    """Judges what the proof draws from Lemma 5, looked at in what the lemma is applied to."""
    chance = paper.shrink_probability(epsilon=EPSILON)
    below = np.mean(
        [(sweep.least_shares_SXQ <= paper.ALPHA_0).mean((1, 2)) for sweep in sweeps], axis=0
    )
    least = min(float(sweep.least_shares_SXQ.min()) for sweep in sweeps)
    return claim(
        f"Theorem 1, {side.title}: the lower tail",
        f"‖x‖² of what the last norm reads is at most α₀ = {paper.ALPHA_0:g} of its mean with "
        f"probability {chance:g} at most, which is ε / (1 + ε − α₀) at ε = {EPSILON:g}.",
        source=f"Xiong et al. 2020, appendix E, eq. ({side.tail_equations})",
        value="share of sequences with a position that is",
        holds={"all": estimate(below)},
        greatest=chance,
        beside=f"The least ‖x‖² of any position is {number(least, 2)} of the mean. That it follows "
        "from an (ε, δ)-bounded ‖x‖² alone is another claim, of the study of concentration.",
    )


def _corrected(side: Half, deep: Mapping[str, Sweep], wide: Mapping[str, Sweep]) -> list[Claim]:
    """The scale, the bound and the value."""
    chances = {
        name: corrected.theorem_1_probability(delta=DELTA, positions=sweep.tokens)
        for name, sweep in wide.items()
    }
    promised = "; ".join(f"{chance:.3f} for {name}" for name, chance in chances.items())
    all_sweeps = (*deep.values(), *wide.values())
    ones = {f"over {sweep.over}": sweep for sweep in all_sweeps if sweep.tokens == 1}
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
            slack=_least_slack(wide, "corrected_bound"),
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
    """Returns the share of gradients above the bound, over seeds: those of one seed share
    weights.
    """
    return estimate(np.mean([sweep.above_SXQ(kind).mean((1, 2)) for sweep in sweeps], axis=0))


def _least_slack(wide: Mapping[str, Sweep], kind: str) -> float:
    """Returns how many times the gradient the bound is, where it is nearest to it."""
    return min(sweep.slack(kind)[0] for sweep in wide.values())


def _looseness(
    wide: Mapping[str, Sweep], kind: str, digits: str, *, of: str = "the gradient"
) -> str:
    factors = {name: sweep.slack(kind) for name, sweep in wide.items()}
    texts = (
        f"{low:{digits}} to {high:{digits}} times {of} for {name}"
        for name, (low, high) in factors.items()
    )
    return f"Over the widths it is {'; '.join(texts)}."
