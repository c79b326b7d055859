"""What the study of the lemmas says of its measurements, each verdict computed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from normscope.evidence.estimates import part
from normscope.evidence.judging import Answer, all_hold, by_place, each_between
from normscope.measure import Estimate
from normscope.report.words import interval, number, percentage

from ..engine.claims import Made, judged
from ..theory import corrected, paper
from .measure import STEPS, LemmasConfig

Estimates = Mapping[str, Estimate]
"""Means over seeds with 95 % intervals, by what was measured: see `study.estimated`."""
EQUAL_WITHIN = 0.02
"""A share of the value: its whole interval must be nearer than this."""
PREDICTED_WITHIN = 0.03
"""The same, for values that are predicted."""
BOUND_WITHIN = 0.05
"""By how much ‖J‖ may exceed √d / ‖x‖ and still be called that."""


def claims(config: LemmasConfig, of: Estimates, jacobian: Sequence[Mapping[str, Any]], hidden_off: float) -> list[Made]:
    """Every claim, and the numbers it quotes. jacobian: by seed; hidden_off: how far ‖x‖² / d of a state is from 1."""
    return [
        lemma_1(config, of),
        post_ln_last(config, of["step 5"]),
        post_ln_steps(config, of),
        post_ln_hidden(of["step 0"], hidden_off),
        *pre_ln_bounds(config, of["pre-ln"]),
        jacobian_exact(config, jacobian),
        jacobian_claimed(config, of),
        rms_norm(jacobian),
    ]


def lemma_1(config: LemmasConfig, of: Estimates) -> Made:
    """The worst of all σ is quoted."""
    shares = of["relu"]
    off = np.abs(shares.mean / 0.5 - 1)
    expected = math.sqrt(5 / config.width)
    worst = int(off.argmax())
    answers = each_between(shares, 0.5 * (1 - EQUAL_WITHIN), 0.5 * (1 + EQUAL_WITHIN))
    numbers = {
        "share": float(shares.mean[worst]),
        "half_width": float(shares.half_width[worst]),
        "largest_off_percent": 100 * float(off.max()),
        "deviation_of_one_percent": 100 * float(of["relu deviation"].mean.mean()),
        "expected_deviation_of_one_percent": 100 * expected,
    }
    claim = judged(
        name="Lemma 1",
        statement="E‖ReLU(X)‖² = σ² d / 2 for X ~ N(0, σ² I_d).",
        source="Xiong et al. 2020, lemma 1",
        found=f"E‖ReLU(X)‖² / (σ² d) is {interval(numbers['share'], numbers['half_width'], 5)} where it is furthest "
        f"from 1/2, {number(numbers['largest_off_percent'])} % off; the standard deviation of a single vector's is "
        f"{number(numbers['deviation_of_one_percent'], 2)} % of the mean, √(5/d) = {percentage(expected, 2)}.",
        holds={f"σ = {sigma:g}": answer for sigma, answer in zip(config.sigmas, answers, strict=True)},
    )
    return claim, numbers


def post_ln_last(config: LemmasConfig, x5: Estimate) -> Made:
    """What the last norm of a block reads."""
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
        found = of[f"step {step}"]
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


def post_ln_hidden(hidden: Estimate, hidden_off: float) -> Made:
    """The hidden state, which digests take for x^{post,5}."""
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


_BOUNDS = "(1 + l/2) d ≤ E‖x_l‖² ≤ (1 + 3l/2) d for l > 0, x_l the {}."
_FIRST = 4
"""Layers whose inputs are quoted beside the bound."""


def pre_ln_bounds(config: LemmasConfig, q: Estimate) -> list[Made]:
    """q: E‖x_l‖² / d by completed blocks."""
    return [_as_layers_count(config, q), _completed(config, q), _digests(config, q), _predicted(config, q)]


def _as_layers_count(config: LemmasConfig, q: Estimate) -> Made:
    d, blocks = config.width, config.blocks
    stated = np.array([paper.pre_ln_squared_norm(layer, width=d) for layer in range(1, blocks + 1)]) / d
    inputs = part(q, slice(0, blocks))
    answers = each_between(inputs, *stated.T)
    outside = [layer for layer, answer in enumerate(answers, 1) if answer is False]
    first = min(_FIRST, blocks)
    pairs = ", ".join(
        f"{number(x, 2)} against {number(bound, 2)}" for x, bound in zip(q.mean[:first], stated[:first, 0], strict=True)
    )
    claim = judged(
        name="Lemma 2, Pre-LN, l as section 3.1 counts",
        statement=_BOUNDS.format("input of layer l"),
        source="Xiong et al. 2020, lemma 2 with section 3.1",
        found=f"E‖x_l‖² / d of the first inputs, and the lower bound: {pairs}. "
        f"{len(outside)} of {blocks} layers lie outside.",
        holds=by_place(answers, "layer"),
    )
    return claim, {"inputs": inputs.mean, "bounds": stated, "layers_outside": outside}


def _completed(config: LemmasConfig, q: Estimate) -> Made:
    bounds = _bounds(config)
    claim = judged(
        name="Lemma 2, Pre-LN, l completed blocks",
        statement=_BOUNDS.format("state after l blocks"),
        source="Xiong et al. 2020, eq. (14) to (20), read as its proof counts",
        found=f"E‖x_l‖² / d is {_end(config, q)}; bounds {number(bounds[-1, 0], 2)} and {number(bounds[-1, 1], 2)}.",
        holds=by_place(each_between(part(q, slice(1, None)), *bounds[1:].T), "depth"),
    )
    return claim, {"bounds": bounds}


def _digests(config: LemmasConfig, q: Estimate) -> Made:
    least = np.array([1.0 + 2 * done for done in range(1, config.blocks + 1)])
    claim = judged(
        name="Lemma 2, Pre-LN, as digests have it",
        statement="E‖x_l‖² ≥ (1 + 2l) d.",
        source="digests of the paper; the paper has (1 + l/2) d",
        found=f"{_end(config, q)}, where {least[-1]:.0f} is asked for; that is more than the paper's upper "
        f"bound {number(_bounds(config)[-1, 1], 2)}.",
        holds=by_place(each_between(part(q, slice(1, None)), least, math.inf), "depth"),
    )
    return claim, {"lower_bound": least}


def _predicted(config: LemmasConfig, q: Estimate) -> Made:
    predicted = np.array([one for one, _ in corrected.pre_ln_stream(config.blocks, tokens=config.tokens)])
    off = 100 * np.abs(q.mean / predicted - 1)
    at = int(off.argmax())
    error = 100 * q.half_width[at] / predicted[at]
    claim = judged(
        name="Pre-LN, the value between the bounds",
        statement=f"The mean-field recursion gives E‖x_l‖² within {100 * PREDICTED_WITHIN:.0f} %.",
        source="corrected",
        found=f"{number(q.mean[-1], 2)} measured, {number(predicted[-1], 2)} predicted after {config.blocks} blocks; "
        f"at most {number(off[at], 2)} % ± {number(error, 2)} % off (l = {at}).",
        holds=by_place(
            each_between(q, (1 - PREDICTED_WITHIN) * predicted, (1 + PREDICTED_WITHIN) * predicted), "depth", first=0
        ),
    )
    return claim, {"predicted": predicted, "largest_off_percent": off[at], "half_width_percent": error}


def _bounds(config: LemmasConfig) -> np.ndarray:
    """(L + 1, 2) by completed blocks, over d."""
    d = config.width
    bounds = [corrected.pre_ln_squared_norm(done, width=d) for done in range(config.blocks + 1)]
    return np.array(bounds) / d


def _end(config: LemmasConfig, q: Estimate) -> str:
    return f"{interval(q.mean[-1], q.half_width[-1], 2)} after {config.blocks} blocks"


_ROUNDING = 1e-3
"""Autograd and formula differ by less where they agree; both are in float64 and have no spread."""


def jacobian_exact(config: LemmasConfig, jacobian: Sequence[Mapping[str, Any]]) -> Made:
    """LayerNorm's, with the mean of x taken off."""
    numbers = _numbers(jacobian, "layer-norm")
    alike = numbers["equal"] == [config.singular_width - 2] and numbers["zero"] == [2]
    claim = judged(
        name="Lemma 3, exactly",
        statement="‖J_LN(x)‖₂ = √d / ‖x - mean‖₂; d - 2 singular values are equal and two are 0.",
        source="Xiong et al. 2020, eq. (28); corrected",
        found=f"By autograd at most {numbers['largest_off']:.1e} off as a share; of {config.singular_width} singular "
        f"values {_counts(numbers['equal'])} are equal and {_counts(numbers['zero'])} are 0.",
        holds={"all": numbers["largest_off"] < _ROUNDING and alike},
    )
    return claim, numbers


def jacobian_claimed(config: LemmasConfig, of: Estimates) -> Made:
    """LayerNorm's, as if x had no mean."""
    measured, claimed = of["layer-norm"].mean, of["claimed"].mean
    answers = each_between(of["layer-norm over claimed"], -math.inf, 1 + BOUND_WITHIN)
    numbers = {
        "mean_of_features": config.means,
        "measured": measured,
        "claimed": claimed,
        "ratio": of["layer-norm over claimed"].mean,
    }
    texts = "; ".join(
        f"mean {mean:g}: {number(true)}, claimed {number(bound)}"
        for mean, true, bound in zip(config.means, measured, claimed, strict=True)
    )
    claim = judged(
        name="Lemma 3, as stated",
        statement="‖J_LN(x)‖₂ = O(√d / ‖x‖₂), whatever x.",
        source="Xiong et al. 2020, lemma 3, eq. (29)",
        found=f"x ~ N(0, I) plus a mean. {texts}. The ratio grows as √(1 + mean²), without a bound.",
        holds={f"a mean of {mean:g}": answer for mean, answer in zip(config.means, answers, strict=True)},
    )
    return claim, numbers


def rms_norm(jacobian: Sequence[Mapping[str, Any]]) -> Made:
    """RMSNorm's, which takes no mean off."""
    numbers = _numbers(jacobian, "rms-norm")
    claim = judged(
        name="Lemma 3, RMSNorm",
        statement="‖J_RMS(x)‖₂ = √d / ‖x‖₂ exactly, with one singular value 0.",
        source="corrected",
        found=f"By autograd at most {numbers['largest_off']:.1e} off as a share, whatever the mean; singular values "
        f"that are 0: {_counts(numbers['zero'])}.",
        holds={"all": numbers["largest_off"] < _ROUNDING and numbers["zero"] == [1]},
    )
    return claim, numbers


def _numbers(jacobian: Sequence[Mapping[str, Any]], norm: str) -> dict[str, Any]:
    """Over all seeds and means: the largest share by which autograd and formula differ, and the counts there were."""
    off = max(one[norm]["off"] for one in jacobian)
    return {"largest_off": off, **{what: sorted({one[norm][what] for one in jacobian}) for what in ("equal", "zero")}}


def _counts(found: Sequence[int]) -> str:
    return " or ".join(map(str, found))
