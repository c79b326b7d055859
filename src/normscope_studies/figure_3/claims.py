"""The statements of Xiong et al. 2020, section 3.4, beside what was measured."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from normscope.evidence.estimates import estimate, exponent, with_interval
from normscope.evidence.judging import Answer, between, lies_within
from normscope.measure import Estimate
from normscope.report.words import interval, number, span

from ..engine.claims import judged
from ..engine.page import Claim
from .config import POST, PRE, Condition
from .measure import MATRICES, PRINTED, STACKS
from .numbers import Array, Numbers, factor_per_layer

PUBLISHED = 1.6
"""Section 3.4: the gradient of the last W₂ of Post-LN, at every depth."""
AROUND = 0.1
"""Relative: "around 1.6" is 1.44 to 1.76, the mean over the depths."""
NEAR = 0.1
"""Exponents of depth this close count as the same: from 6-6 to 14-14 they differ by 9 %."""
NEAR_LAYER = 0.05
"""Logarithms of factors from layer to layer this close count as the same: 5 % a layer."""
SAME = 1.25
"""A last layer that differs from the first by no more than this factor is "almost the same"."""
SMALL = 0.5
"""After the warm-up a gradient is "very small" at less than half of what it was before."""
PARTS = [(matrix, stack) for stack in STACKS for matrix in MATRICES]
"""In the order in which claims name them."""
_SECTION = "Xiong et al. 2020, section 3.4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What theory predicts of the slopes."""

    exponents: Mapping[Condition, float]
    """Of depth: Pre-LN's last W2."""
    factors: Mapping[str, Mapping[tuple[str, str], float]]
    """From layer to layer, by placement, then matrix and stack; logarithms."""


def claims(numbers: Numbers, theory: Expected) -> list[Claim]:
    """Panel (d), (c), (a) and (b), and after the warm-up; each as the paper has it, then corrected."""
    post, pre = (
        {condition: exponent(numbers.blocks, by[placement]) for condition, by in numbers.last.items()}
        for placement in (POST, PRE)
    )
    return [
        judged(
            name="Figure 3(d), Post-LN keeps its size",
            statement="the gradient of the last W₂ stays the same whatever the depth",
            source=f"{_SECTION} and Theorem 1",
            found=_exponents(post),
            holds={_batches(condition): lies_within(found, 0.0, NEAR) for condition, found in post.items()},
        ),
        judged(
            name="Figure 3(d), its size",
            statement=f"it is around {PUBLISHED}",
            source=_SECTION,
            found=_sizes(numbers, POST),
            holds={_batches(condition): around(by[POST]) for condition, by in numbers.last.items()},
        ),
        judged(
            name="Figure 3(c), Pre-LN falls",
            statement="the gradient of the last W₂ decreases as the model grows",
            source=_SECTION,
            found=_sizes(numbers, PRE),
            holds={_batches(condition): falls(found) for condition, found in pre.items()},
        ),
        judged(
            name="Figure 3(c), Pre-LN falls as 1/√L",
            statement="the gradient of the last W₂ is of order 1/√L: its exponent of depth is −½",
            source="Xiong et al. 2020, Theorem 1",
            found=_exponents(pre),
            holds={_batches(condition): lies_within(found, -0.5, NEAR) for condition, found in pre.items()},
        ),
        judged(
            name="Figure 3(c), Pre-LN falls as predicted",
            statement="it falls as the stream that it is divided by grows, but for the embedding's part of it: at "
            f"these depths, of this text, with the exponent {span(list(theory.exponents.values()))}",
            source="corrected",
            found=_exponents(pre),
            holds={_batches(c): lies_within(found, theory.exponents[c], NEAR) for c, found in pre.items()},
        ),
        *layer_claims(numbers, theory),
        *warm_up_claims(numbers),
    ]


def layer_claims(numbers: Numbers, theory: Expected) -> list[Claim]:
    """Panels (a) and (b)."""
    post, pre = ({key: numbers.layers[name]["norm_of_mean"][key] for key in PARTS} for name in (POST, PRE))
    return [
        judged(
            name="Figure 3(a, b), Post-LN grows with the layer",
            statement="the norm of the expected gradient grows along with the layer index",
            source=_SECTION,
            found=_ends(post),
            holds={_part(key): grows(values) for key, values in post.items()},
        ),
        _as_predicted(
            "Post-LN grows as predicted",
            "it grows slowly in the encoder, and in the decoder because every cross-attention passes a part of the "
            "gradient on to the encoder",
            post,
            theory.factors[POST],
        ),
        judged(
            name="Figure 3(a, b), Pre-LN stays",
            statement="the norm of the expected gradient stays almost the same for all layers",
            source=_SECTION,
            found=_ends(pre),
            holds={_part(key): same(values) for key, values in pre.items()},
        ),
        _as_predicted(
            "Pre-LN falls as predicted", "it falls as the stream grows over the layers", pre, theory.factors[PRE]
        ),
    ]


def _as_predicted(
    name: str, reason: str, values: Mapping[tuple[str, str], Array], factors: Mapping[tuple[str, str], float]
) -> Claim:
    layers = ", ".join(f"{_part(key)} × {math.exp(factor):.2f}" for key, factor in factors.items())
    return judged(
        name=f"Figure 3(a, b), {name}",
        statement=f"{reason}: a layer {layers}",
        source="corrected",
        found=_ends(values),
        holds={_part(key): as_expected(values[key], factor) for key, factor in factors.items()},
    )


def warm_up_claims(numbers: Numbers) -> list[Claim]:
    """Post-LN after the warm-up; none where nothing was trained."""
    if not numbers.after:
        return []
    ratios = left_after_warm_up(numbers)
    found = ", ".join(f"{_part(key)} {span(ratio.mean.tolist(), 2)}" for key, ratio in ratios.items())
    return [
        judged(
            name="Figure 3(a, b), Post-LN after the warm-up",
            statement="after the warm-up with Adam its gradients are very small",
            source=_SECTION,
            found=f"Of what it was in the same layer before, the norm is: {found}.",
            holds={_part(key): between(ratio, greatest=SMALL) for key, ratio in ratios.items()},
        )
    ]


def left_after_warm_up(numbers: Numbers) -> dict[tuple[str, str], Estimate]:
    """(L,) The norm of the mean gradient as a share of what it was before, over the seeds that were trained."""
    before, after = numbers.before["norm_of_mean"], numbers.after["norm_of_mean"]
    return {key: estimate(after[key] / before[key][: len(after[key])]) for key in PARTS}


def around(values_SB: Array) -> Answer:
    """PUBLISHED, in the mean over the depths."""
    return lies_within(estimate(values_SB.mean(1)), PUBLISHED, AROUND * PUBLISHED)


def falls(found: Estimate) -> Answer:
    """Whether an exponent or a logarithm of a factor is negative."""
    return between(found, greatest=0.0)


def grows(values_SL: Array) -> Answer:
    """Whether the norms grow from layer to layer."""
    return between(factor_per_layer(values_SL), least=0.0)


def as_expected(values_SL: Array, factor: float) -> Answer:
    return lies_within(factor_per_layer(values_SL), factor, NEAR_LAYER)


def same(values_SL: Array) -> Answer:
    """The last layer beside the first."""
    return lies_within(estimate(np.log(values_SL[:, -1] / values_SL[:, 0])), 0.0, math.log(SAME))


def _part(key: tuple[str, str]) -> str:
    matrix, stack = key
    return f"{stack} {PRINTED[matrix]}"


def _batches(condition: Condition) -> str:
    return f"batches of {condition.title}"


def _exponents(found: Mapping[Condition, Estimate]) -> str:
    values = "; ".join(f"{with_interval(value)} in {_batches(condition)}" for condition, value in found.items())
    return f"Exponent of depth: {values}."


def _sizes(numbers: Numbers, placement: str) -> str:
    texts, blocks = [], numbers.blocks
    for condition, by_placement in numbers.last.items():
        found = estimate(by_placement[placement])
        ends = (f"{blocks[i]}-{blocks[i]} {interval(found.mean[i], found.half_width[i], 2)}" for i in (0, -1))
        texts.append(f"{', '.join(ends)} in {_batches(condition)}")
    return f"{'; '.join(texts)}."


def _ends(parts: Mapping[tuple[str, str], Array]) -> str:
    """The first and last layer of each stack, and the factor from layer to layer."""
    texts = []
    for key, values in parts.items():
        means, factor = values.mean(0), factor_per_layer(values)
        low, high = (math.exp(float(edge)) for edge in (factor.low, factor.high))
        texts.append(
            f"{_part(key)} {number(means[0], 2)} to {number(means[-1], 2)} "
            f"(a layer × {number(low, 2)} to {number(high, 2)})"
        )
    return f"First to last layer: {'; '.join(texts)}."
