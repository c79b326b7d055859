"""Lemma 2 for Post-LN: the squared norms of the steps of a block."""

from normscope.evidence.judging import Answer, all_hold, by_place, each_between
from normscope.measure import Estimate
from normscope.report.words import number

from ...engine.claims import Made, judged
from ...theory import corrected, paper
from ..estimates import Estimates
from ..measure import STEPS, LemmasConfig
from .tolerance import EQUAL_WITHIN


def post_ln_last(config: LemmasConfig, of: Estimates) -> Made:
    """What the last norm of a block reads."""
    x5 = of.steps[5]
    value = corrected.post_ln_squared_norm(width=config.width) / config.width
    numbers = {
        "mean": float(x5.mean.mean()),
        "least": float(x5.mean.min()),
        "greatest": float(x5.mean.max()),
        "largest_half_width": float(x5.half_width.max()),
    }
    claim = judged(
        name="Lemma 2, Post-LN, before the last norm",
        statement="E‖x^{post,5}‖² = 3d/2 in every layer.",
        source="Xiong et al. 2020, lemma 2, eq. (13)",
        found=f"{number(numbers['mean'], 4)} d on average over blocks, between {number(numbers['least'], 4)} d and "
        f"{number(numbers['greatest'], 4)} d, each ± {number(numbers['largest_half_width'], 4)} d at most.",
        holds=by_place(_equal(x5, value), "layer"),
    )
    return claim, numbers


def post_ln_steps(config: LemmasConfig, of: Estimates) -> Made:
    """A step holds where it does in all blocks."""
    holds, ranges = [], []
    for step in range(1, STEPS):
        found = of.steps[step]
        least, greatest = (bound / config.width for bound in paper.post_ln_squared_norm(step, width=config.width))
        ranges.append([float(found.mean.min()), float(found.mean.max())])
        holds.append(all_hold(_equal(found, least) if least == greatest else each_between(found, least, greatest)))
    texts = "; ".join(
        f"x{sup} {number(low)} to {number(high)}" for sup, (low, high) in zip("¹²³⁴⁵", ranges, strict=True)
    )
    claim = judged(
        name="Lemma 2, Post-LN, the steps of Table 1",
        statement="E‖x^{post,1}‖² ≤ d ≤ E‖x^{post,2}‖² ≤ 2d, E‖x^{post,3}‖² = d, E‖x^{post,4}‖² = d/2, "
        "E‖x^{post,5}‖² = 3d/2.",
        source="Xiong et al. 2020, proof of lemma 2, eq. (2) to (13)",
        found=f"Over blocks, in units of d: {texts}.",
        holds=by_place(holds, "step"),
    )
    return claim, {"ranges": ranges}


def post_ln_hidden(of: Estimates, hidden_off: float) -> Made:
    """The hidden state, which digests take for x^{post,5}."""
    hidden = of.steps[0]
    claim = judged(
        name="Lemma 2, Post-LN, as digests have it",
        statement="The hidden state itself has E‖x‖² = 3d/2.",
        source="digests of the paper; the paper says it of x^{post,5}",
        found=f"{number(float(hidden.mean.mean()), 4)} d: a norm's output has squared norm d up to its ε, at most "
        f"{number(hidden_off, 6)} d off in any token.",
        holds=by_place(_equal(hidden, 1.5), "layer"),
    )
    return claim, {"mean": hidden.mean.mean(), "largest_off": hidden_off}


def _equal(found: Estimate, value: float) -> list[Answer]:
    return each_between(found, (1 - EQUAL_WITHIN) * value, (1 + EQUAL_WITHIN) * value)
