"""Lemma 2 for Pre-LN: how the squared norm of the hidden state grows, read in three ways, and the value itself."""

import math

import numpy as np

from normscope.evidence.estimates import part
from normscope.evidence.judging import by_place, each_between
from normscope.measure import Estimate
from normscope.report.words import interval, number

from ...engine.claims import Made, judged
from ...theory import corrected, paper
from ..measure import LemmasConfig
from .tolerance import PREDICTED_WITHIN

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
