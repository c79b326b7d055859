"""The paper's figure 3: gradient norms by layer and by depth, at initialisation and after the
warm-up, on real text.

The statements of Xiong et al. 2020, section 3.4, stand beside what was measured; then corrected
ones.
"""

import math
from collections.abc import Mapping

import numpy as np

from normscope.data.opening import TOY
from normscope.measure import Estimate
from normscope.report.words import interval, number, percentage, span

from ..engine.claims import around, claim, shown_factor
from ..engine.estimates import Floats, estimate, exponent
from ..engine.page import Claim, Findings
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from .measure import POST, PRE, PRINTED, Condition, Figure3Config
from .numbers import PARTS, Figure3Numbers, factor_per_layer, measure, numbers_of
from .page import PUBLISHED, conditions, data, figures

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
_SECTION = "Xiong et al. 2020, section 3.4"
_EXPONENT, _A_LAYER = "exponent of depth", "factor from layer to layer"


def claims(numbers: Figure3Numbers) -> list[Claim]:
    """Panel (d), (c), (a) and (b), and after the warm-up; each as the paper has it, then
    corrected.
    """
    return [*_depth_claims(numbers), *_layer_claims(numbers), *_warm_up_claims(numbers)]


def _depth_claims(numbers: Figure3Numbers) -> list[Claim]:
    """Panels (d) and (c)."""
    return [*_post_ln_over_depth(numbers), *_pre_ln_over_depth(numbers)]


def _exponents(numbers: Figure3Numbers, placement: str) -> dict[str, Estimate]:
    """Of the last W₂'s gradient over the number of blocks."""
    return {
        _batches(condition): exponent(numbers.blocks, by[placement])
        for condition, by in numbers.last.items()
    }


def _post_ln_over_depth(numbers: Figure3Numbers) -> list[Claim]:
    """Panel (d)."""
    sizes = {
        _batches(condition): estimate(by[POST].mean(1)) for condition, by in numbers.last.items()
    }
    return [
        claim(
            "Figure 3(d), Post-LN keeps its size",
            "the gradient of the last W₂ stays the same whatever the depth: an exponent of 0 "
            f"within {NEAR:g}",
            source=f"{_SECTION} and Theorem 1",
            value=_EXPONENT,
            holds=_exponents(numbers, POST),
            **around(0.0, NEAR),
        ),
        claim(
            "Figure 3(d), its size",
            f"it is around {PUBLISHED}, within {percentage(AROUND, 0)}",
            source=_SECTION,
            value="mean over the depths",
            holds=sizes,
            **around(PUBLISHED, AROUND * PUBLISHED),
            beside=_ends_of_depth(numbers, POST),
        ),
    ]


def _pre_ln_over_depth(numbers: Figure3Numbers) -> list[Claim]:
    """Panel (c)."""
    pre = _exponents(numbers, PRE)
    predicted = {
        _batches(condition): numbers.predicted_exponent(condition, PRE)
        for condition in numbers.last
    }
    return [
        claim(
            "Figure 3(c), Pre-LN falls",
            "the gradient of the last W₂ decreases as the model grows: an exponent below 0",
            source=_SECTION,
            value=_EXPONENT,
            holds=pre,
            greatest=0.0,
            beside=_ends_of_depth(numbers, PRE),
        ),
        claim(
            "Figure 3(c), Pre-LN falls as 1/√L",
            "the gradient of the last W₂ is of order 1/√L: its exponent of depth is −½ within "
            f"{NEAR:g}",
            source="Xiong et al. 2020, Theorem 1",
            value=_EXPONENT,
            holds=pre,
            **around(-0.5, NEAR),
        ),
        claim(
            "Figure 3(c), Pre-LN falls as predicted",
            "it falls as the stream that it is divided by grows, but for the embedding's part of "
            "it: at these depths, of this text, with the exponent "
            f"{span(list(predicted.values()))}, within {NEAR:g}",
            source="corrected",
            value=_EXPONENT,
            holds=pre,
            **around(predicted, NEAR),
        ),
    ]


def _layer_claims(numbers: Figure3Numbers) -> list[Claim]:
    """Panels (a) and (b)."""
    return [*_post_ln_over_layers(numbers), *_pre_ln_over_layers(numbers)]


def _post_ln_over_layers(numbers: Figure3Numbers) -> list[Claim]:
    post = numbers.layers[POST]["norm_of_mean"]
    slopes = {_part(key): factor_per_layer(post[key]) for key in PARTS}
    return [
        claim(
            "Figure 3(a, b), Post-LN grows with the layer",
            "the norm of the expected gradient grows along with the layer index: by a factor above "
            "1 a layer",
            source=_SECTION,
            value=_A_LAYER,
            holds=slopes,
            least=0.0,
            shown=shown_factor,
            beside=_ends_of_layers(post),
        ),
        _as_predicted(
            "Post-LN grows as predicted",
            "it grows slowly in the encoder, and in the decoder because every cross-attention "
            "passes a part of the gradient on to the encoder",
            numbers.predicted_factors(POST),
            slopes,
        ),
    ]


def _pre_ln_over_layers(numbers: Figure3Numbers) -> list[Claim]:
    pre = numbers.layers[PRE]["norm_of_mean"]
    slopes = {_part(key): factor_per_layer(pre[key]) for key in PARTS}
    last_over_first = {
        _part(key): estimate(np.log(pre[key][:, -1] / pre[key][:, 0])) for key in PARTS
    }
    return [
        claim(
            "Figure 3(a, b), Pre-LN stays",
            "the norm of the expected gradient stays almost the same for all layers: the last "
            f"layer's within a factor of {SAME:g} of the first's",
            source=_SECTION,
            value="the last layer's over the first's",
            holds=last_over_first,
            **around(0.0, math.log(SAME)),
            shown=shown_factor,
            beside=_ends_of_layers(pre),
        ),
        _as_predicted(
            "Pre-LN falls as predicted",
            "it falls as the stream grows over the layers",
            numbers.predicted_factors(PRE),
            slopes,
        ),
    ]


def _as_predicted(
    name: str,
    reason: str,
    predicted: Mapping[tuple[str, str], float],
    measured: Mapping[str, Estimate],
) -> Claim:
    """That gradients grow from layer to layer by the predicted factors, whose logarithms are
    given.
    """
    factors = {_part(key): factor for key, factor in predicted.items()}
    layers = ", ".join(f"{part} × {math.exp(factor):.2f}" for part, factor in factors.items())
    return claim(
        f"Figure 3(a, b), {name}",
        f"{reason}: a layer {layers}, within {percentage(NEAR_LAYER, 0)}",
        source="corrected",
        value=_A_LAYER,
        holds=measured,
        **around(factors, NEAR_LAYER),
        shown=shown_factor,
    )


def _warm_up_claims(numbers: Figure3Numbers) -> list[Claim]:
    """Post-LN after the warm-up; none where nothing was trained."""
    if not numbers.after:
        return []
    return [
        claim(
            "Figure 3(a, b), Post-LN after the warm-up",
            f"after the warm-up with Adam its gradients are very small: less than {SMALL:g} of "
            "what they were",
            source=_SECTION,
            value="Of what it was in the same layer before, the norm is",
            holds={_part(key): ratio for key, ratio in numbers.left_after_warm_up.items()},
            greatest=SMALL,
            shown=lambda ratio: span(ratio.mean.tolist(), 2),
        )
    ]


def _part(key: tuple[str, str]) -> str:
    matrix, stack = key
    return f"{stack} {PRINTED[matrix]}"


def _batches(condition: Condition) -> str:
    return f"batches of {condition.title}"


def _ends_of_depth(numbers: Figure3Numbers, placement: str) -> str:
    texts, blocks = [], numbers.blocks
    for condition, by_placement in numbers.last.items():
        found = estimate(by_placement[placement])
        ends = (
            f"{blocks[i]}-{blocks[i]} {interval(found.mean[i], found.half_width[i], 2)}"
            for i in (0, -1)
        )
        texts.append(f"{', '.join(ends)} in {_batches(condition)}")
    return f"Its norm: {'; '.join(texts)}."


def _ends_of_layers(parts: Mapping[tuple[str, str], Floats]) -> str:
    means = {_part(key): parts[key].mean(0) for key in PARTS}
    texts = (
        f"{part} {number(mean[0], 2)} to {number(mean[-1], 2)}" for part, mean in means.items()
    )
    return f"First to last layer: {'; '.join(texts)}."


def run(config: Figure3Config, pieces: Pieces) -> Findings:
    """Raises UserError for a corpus that is not there, and for a training that fails."""
    measured = measure(config, pieces)
    numbers = numbers_of(config, measured)
    return Findings(
        conditions=conditions(config, measured),
        claims=claims(numbers),
        figures=figures(numbers, trained=f"width {config.warm_up_width}"),
        data=data(numbers, measured),
    )


SCALES = scales(
    Figure3Config,
    smoke={
        "corpus": TOY,
        "toy_pairs": 1_000,
        "seeds": 2,
        "blocks": (2, 3),
        "width": 32,
        "ffn_width": 64,
        "max_tokens": 512,
        "batches": 2,
        "last_batches": 2,
        "small_max_tokens": 64,
        "small_batches": 2,
        "warm_up_width": 32,
        "warm_up_ffn_width": 64,
        "warm_up_updates": 8,
        "warm_up_max_tokens": 256,
    },
    paper={
        "warm_up_seeds": 10,
        "warm_up_width": 512,
        "warm_up_ffn_width": 1024,
        "warm_up_max_tokens": 4096,
        "device": "auto",
    },
)
"""Cost: smoke takes seconds; cpu some 40 minutes of one core, and 50 more for the training; paper
ten trainings of 4,000 updates at full size, some 5 hours each on a core and minutes each on an
accelerator."""
STUDY = Study(
    title="Gradients by layer and by depth: the paper's Figure 3",
    question=(
        "How large is the gradient of the feed-forward matrices of Post-LN and Pre-LN, layer by "
        "layer and as the model grows, on real text? Is it around 1.6 at every depth of Post-LN, "
        "and what is left of it after the warm-up?"
    ),
    help="The paper's Figure 3: where are gradients large?",
    scales=SCALES,
    run=run,
)
