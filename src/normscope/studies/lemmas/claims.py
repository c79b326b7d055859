"""What the study of the lemmas says of its measurements: a claim each, with a verdict computed from them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...measure import Estimate
from ...report.study.contents import Claim, Verdict
from ...theory import corrected, paper
from ..protocol.evidence import joined
from .measure import STEPS, LemmasConfig

EQUAL_WITHIN = 0.02
"""A share of the value: less is not told apart from it."""
PREDICTED_WITHIN = 0.03
_BOUND_WITHIN = 0.05
"""By how much ‖J‖ may exceed √d / ‖x‖ and still be called that."""


Made = tuple[Claim, dict[str, Any]]
"""A claim and the numbers it quotes."""


def lemma_1(config: LemmasConfig, of: Mapping[str, Estimate]) -> Made:
    """The worst of all σ."""
    shares, deviation = of["relu"], of["relu deviation"]
    off = np.abs(shares.mean / 0.5 - 1)
    expected = math.sqrt(5 / config.width)
    worst = int(off.argmax())
    numbers = {
        "share": float(shares.mean[worst]),
        "half_width": float(shares.half_width[worst]),
        "largest_off_percent": 100 * float(off.max()),
        "deviation_of_one_percent": 100 * float(deviation.mean.mean()),
        "expected_deviation_of_one_percent": 100 * expected,
    }
    return Claim(
        name="Lemma 1",
        statement="E‖ReLU(X)‖² = σ² d / 2 for X ~ N(0, σ² I_d).",
        source="Xiong et al. 2020, lemma 1",
        found=f"E‖ReLU(X)‖² / (σ² d) is {numbers['share']:.5f} ± {numbers['half_width']:.5f} where it is furthest from "
        f"1/2, {numbers['largest_off_percent']:.3f} % off; the standard deviation of a single vector's is "
        f"{numbers['deviation_of_one_percent']:.2f} % of the mean, √(5/d) = {100 * expected:.2f} %.",
        verdict="not reproduced" if unequal(shares, 0.5) else "reproduced",
    ), numbers


def post_ln_last(config: LemmasConfig, of: Mapping[str, Estimate]) -> Made:
    x5 = of["step 5"]
    value = corrected.post_ln_squared_norm(width=config.width) / config.width
    numbers = {
        "mean": float(x5.mean.mean()),
        "least": float(x5.mean.min()),
        "greatest": float(x5.mean.max()),
        "largest_half_width": float(x5.half_width.max()),
    }
    return Claim(
        name="Lemma 2, Post-LN, before the last norm",
        statement="E‖x^{post,5}‖² = 3d/2 in every layer.",
        source="Xiong et al. 2020, lemma 2, eq. (13)",
        found=f"{numbers['mean']:.4f} d on average over blocks, between {numbers['least']:.4f} d and "
        f"{numbers['greatest']:.4f} d, each ± {numbers['largest_half_width']:.4f} d at most.",
        **_by_layer([block + 1 for block in unequal(x5, value)], config.blocks, "layer"),
    ), numbers


def post_ln_steps(config: LemmasConfig, of: Mapping[str, Estimate]) -> Made:
    """A step fails where any block's does."""
    failing, ranges = [], []
    for step in range(1, STEPS):
        estimate = of[f"step {step}"]
        least, greatest = (bound / config.width for bound in paper.post_ln_squared_norm(step, width=config.width))
        ranges.append([float(estimate.mean.min()), float(estimate.mean.max())])
        broken = unequal(estimate, least) if least == greatest else outside(estimate, least, greatest)
        failing += [step] if broken else []
    told = "; ".join(f"x{sup} {low:.3f} to {high:.3f}" for sup, (low, high) in zip("¹²³⁴⁵", ranges, strict=True))
    return Claim(
        name="Lemma 2, Post-LN, the steps of Table 1",
        statement="E‖x^{post,1}‖² ≤ d ≤ E‖x^{post,2}‖² ≤ 2d, E‖x^{post,3}‖² = d, E‖x^{post,4}‖² = d/2, "
        "E‖x^{post,5}‖² = 3d/2.",
        source="Xiong et al. 2020, proof of lemma 2, eq. (2) to (13)",
        found=f"Over blocks, in units of d: {told}.",
        **_by_layer(failing, STEPS - 1, "step"),
    ), {"ranges": ranges}


def post_ln_hidden(of: Mapping[str, Estimate], hidden_off: float) -> Made:
    hidden = of["step 0"]
    return Claim(
        name="Lemma 2, Post-LN, as digests have it",
        statement="The hidden state itself has E‖x‖² = 3d/2.",
        source="digests of the paper; the paper says it of x^{post,5}",
        found=f"{hidden.mean.mean():.4f} d: a norm's output has squared norm d up to its ε, at most "
        f"{hidden_off:.6f} d off in any token.",
        **_by_layer([block + 1 for block in unequal(hidden, 1.5)], len(hidden.mean), "layer"),
    ), {"mean": hidden.mean.mean(), "largest_off": hidden_off}


def pre_ln_bounds(config: LemmasConfig, q: Estimate) -> list[Made]:
    d, blocks = config.width, config.blocks
    bounds = np.array([corrected.pre_ln_squared_norm(done, width=d) for done in range(blocks + 1)]) / d
    stated = np.array([paper.pre_ln_squared_norm(layer, width=d) for layer in range(1, blocks + 1)]) / d
    digest = np.array([1.0 + 2 * done for done in range(1, blocks + 1)])
    inputs, completed = part(q, slice(0, blocks)), part(q, slice(1, None))
    broken = outside(inputs, *stated.T)
    low = outside(completed, digest, math.inf)
    first = min(4, blocks)
    pairs = ", ".join(
        f"{x:.2f} against {bound:.2f}" for x, bound in zip(q.mean[:first], stated[:first, 0], strict=True)
    )
    predicted = np.array([one for one, _ in corrected.pre_ln_stream(blocks, tokens=config.tokens)])
    off = 100 * np.abs(q.mean / predicted - 1)
    at = int(off.argmax())
    error = 100 * q.half_width[at] / predicted[at]
    ends = f"{q.mean[-1]:.2f} ± {q.half_width[-1]:.2f} after {blocks} blocks"
    far = unequal(q, predicted, PREDICTED_WITHIN)
    span = f"bounds {bounds[-1, 0]:.2f} and {bounds[-1, 1]:.2f}"
    statement = "(1 + l/2) d ≤ E‖x_l‖² ≤ (1 + 3l/2) d for l > 0, x_l the {}."
    return [
        (
            Claim(
                name="Lemma 2, Pre-LN, l as section 3.1 counts",
                statement=statement.format("input of layer l"),
                source="Xiong et al. 2020, lemma 2 with section 3.1",
                found=f"E‖x_l‖² / d of the first inputs, and the lower bound: {pairs}. "
                f"{len(broken)} of {blocks} layers lie outside.",
                **_by_layer([layer + 1 for layer in broken], blocks, "layer"),
            ),
            {"inputs": inputs.mean, "bounds": stated, "layers_outside": [layer + 1 for layer in broken]},
        ),
        (
            Claim(
                name="Lemma 2, Pre-LN, l completed blocks",
                statement=statement.format("state after l blocks"),
                source="Xiong et al. 2020, eq. (14) to (20), read as its proof counts",
                found=f"E‖x_l‖² / d is {ends}; {span}.",
                **_by_layer([i + 1 for i in outside(completed, *bounds[1:].T)], blocks, "depth"),
            ),
            {"bounds": bounds},
        ),
        (
            Claim(
                name="Lemma 2, Pre-LN, as digests have it",
                statement="E‖x_l‖² ≥ (1 + 2l) d.",
                source="digests of the paper; the paper has (1 + l/2) d",
                found=f"{ends}, where {digest[-1]:.0f} is asked for; that is more than the paper's upper "
                f"bound {bounds[-1, 1]:.2f}.",
                **_by_layer([i + 1 for i in low], blocks, "depth"),
            ),
            {"lower_bound": digest},
        ),
        (
            Claim(
                name="Pre-LN, the value between the bounds",
                statement=f"The mean-field recursion gives E‖x_l‖² within {100 * PREDICTED_WITHIN:.0f} %.",
                source="corrected",
                found=f"{q.mean[-1]:.2f} measured, {predicted[-1]:.2f} predicted after {blocks} blocks; at most "
                f"{off[at]:.2f} % ± {error:.2f} % off (l = {at}).",
                **_by_layer(far, blocks + 1, "depth"),
            ),
            {"predicted": predicted, "largest_off_percent": off[at], "half_width_percent": error},
        ),
    ]


def jacobian_exact(config: LemmasConfig, jacobian: Sequence[Mapping[str, Any]]) -> Made:
    numbers = _jacobian_numbers(jacobian, "layer-norm")
    alike = numbers["equal"] == [config.singular_width - 2] and numbers["zero"] == [2]
    holds = numbers["largest_off"] < 1e-3 and alike
    return Claim(
        name="Lemma 3, exactly",
        statement="‖J_LN(x)‖₂ = √d / ‖x - mean‖₂; d - 2 singular values are equal and two are 0.",
        source="Xiong et al. 2020, eq. (28); corrected",
        found=f"By autograd at most {numbers['largest_off']:.1e} off as a share; of {config.singular_width} singular "
        f"values {_counts(numbers['equal'])} are equal and {_counts(numbers['zero'])} are 0.",
        verdict="reproduced" if holds else "not reproduced",
    ), numbers


def jacobian_claimed(config: LemmasConfig, of: Mapping[str, Estimate]) -> Made:
    ratio = of["layer-norm over claimed"].mean
    failing = [mean for mean, share in zip(config.means, ratio, strict=True) if share > 1 + _BOUND_WITHIN]
    verdict: Verdict = "reproduced"
    if failing:
        verdict = "reproduced under conditions" if len(failing) < len(config.means) else "not reproduced"
    numbers = {
        "mean_of_features": config.means,
        "measured": of["layer-norm"].mean,
        "claimed": of["claimed"].mean,
        "ratio": ratio,
    }
    told = "; ".join(
        f"mean {mean:g}: {true:.3f}, claimed {claimed:.3f}"
        for mean, true, claimed in zip(config.means, numbers["measured"], numbers["claimed"], strict=True)
    )
    return Claim(
        name="Lemma 3, as stated",
        statement="‖J_LN(x)‖₂ = O(√d / ‖x‖₂), whatever x.",
        source="Xiong et al. 2020, lemma 3, eq. (29)",
        found=f"x ~ N(0, I) plus a mean. {told}. The ratio grows as √(1 + mean²), without a bound.",
        verdict=verdict,
        conditions=(
            f"where x has next to no mean; not at {joined([f'{mean:g}' for mean in failing])} times its spread"
            if verdict == "reproduced under conditions"
            else ""
        ),
    ), numbers


def rms_norm(jacobian: Sequence[Mapping[str, Any]]) -> Made:
    numbers = _jacobian_numbers(jacobian, "rms-norm")
    return Claim(
        name="Lemma 3, RMSNorm",
        statement="‖J_RMS(x)‖₂ = √d / ‖x‖₂ exactly, with one singular value 0.",
        source="corrected",
        found=f"By autograd at most {numbers['largest_off']:.1e} off as a share, whatever the mean; singular values "
        f"that are 0: {_counts(numbers['zero'])}.",
        verdict="reproduced" if numbers["largest_off"] < 1e-3 and numbers["zero"] == [1] else "not reproduced",
    ), numbers


def _jacobian_numbers(jacobian: Sequence[Mapping[str, Any]], norm: str) -> dict[str, Any]:
    """Over all seeds and means: the largest share by which autograd and formula differ, and the counts there were."""
    off = max(one[norm]["off"] for one in jacobian)
    return {"largest_off": off, **{what: sorted({one[norm][what] for one in jacobian}) for what in ("equal", "zero")}}


def _counts(found: Sequence[int]) -> str:
    return " or ".join(map(str, found))


def part(of: Estimate, places: slice) -> Estimate:
    """Those places of a vector's estimate."""
    return Estimate(
        count=of.count, mean=of.mean[places], deviation=of.deviation[places], half_width=of.half_width[places]
    )


def outside(of: Estimate, least: NDArray[np.float64] | float, greatest: NDArray[np.float64] | float) -> list[int]:
    """Places whose whole interval lies below the least or above the greatest value allowed."""
    return [int(place) for place in np.flatnonzero((of.high < least) | (of.low > greatest))]


def unequal(of: Estimate, value: NDArray[np.float64] | float, share: float = EQUAL_WITHIN) -> list[int]:
    """Places whose whole interval is further than that share of the value from it."""
    return outside(of, (1 - share) * value, (1 + share) * value)


def _by_layer(failing: Sequence[int], count: int, what: str) -> dict[str, Any]:
    """Verdict and conditions where the statement fails for those of `count` layers, counted from 1."""
    if not failing:
        return {"verdict": "reproduced"}
    if len(failing) >= count:
        return {"verdict": "not reproduced"}
    first = list(failing) == list(range(1, len(failing) + 1))
    which = f"from {what} {len(failing) + 1} on" if first else f"not for {what} {', '.join(map(str, failing))}"
    return {"verdict": "reproduced under conditions", "conditions": which}
