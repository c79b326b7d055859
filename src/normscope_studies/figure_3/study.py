"""The paper's figure 3: gradient norms by layer and by depth, at initialisation and after the
warm-up, on real text.

The statements of Xiong et al. 2020, section 3.4, stand beside what was measured; then corrected
ones.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from normscope.data.opening import TOY
from normscope.measure import Estimate
from normscope.report.words import interval, number, percentage, span

from ..engine.claims import around, claim, shown_factor
from ..engine.estimates import Floats, estimate, exponent
from ..engine.page import Claim, Findings
from ..engine.pieces import Pieces
from ..engine.study import JudgedAgain, Study, scales
from .evidence import Figure3Evidence, evidence, evidence_again
from .measure import POST, PRE, PRINTED, Condition, Figure3Config
from .numbers import PARTS, measure, numbers_of
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
"""The share of what it was before at which a gradient after the warm-up is "very small"."""
_SECTION = "Xiong et al. 2020, section 3.4"
_EXPONENT, _A_LAYER = "exponent of depth", "factor from layer to layer"


def claims(seen: Figure3Evidence) -> list[Claim]:
    """Panel (d), (c), (a) and (b), and after the warm-up; each as the paper has it, then
    corrected.
    """
    return [*_depth_claims(seen), *_layer_claims(seen), *_warm_up_claims(seen)]


def _depth_claims(seen: Figure3Evidence) -> list[Claim]:
    """Panels (d) and (c)."""
    return [*_post_ln_over_depth(seen), *_pre_ln_over_depth(seen)]


def _exponents(seen: Figure3Evidence, placement: str) -> dict[str, Estimate]:
    """Returns the exponents of the last W₂'s gradient over the number of blocks."""
    return {
        _batches(condition): exponent(seen.blocks, by[placement])
        for condition, by in seen.last.items()
    }


def _post_ln_over_depth(seen: Figure3Evidence) -> list[Claim]:
    """Panel (d)."""
    return [
        claim(
            "Figure 3(d), Post-LN keeps its size",
            "the gradient of the last W₂ stays the same whatever the depth: an exponent of 0 "
            f"within {NEAR:g}",
            source=f"{_SECTION} and Theorem 1",
            value=_EXPONENT,
            holds=_exponents(seen, POST),
            **around(0.0, NEAR),
        ),
        _size(seen, "with dropout", dropped=True),
        _size(seen, "without dropout", dropped=False),
    ]


def _pre_ln_over_depth(seen: Figure3Evidence) -> list[Claim]:
    """Panel (c)."""
    pre = _exponents(seen, PRE)
    predicted = {_batches(condition): by[PRE] for condition, by in seen.predicted_exponents.items()}
    return [
        claim(
            "Figure 3(c), Pre-LN falls",
            "the gradient of the last W₂ decreases as the model grows: an exponent below 0",
            source=_SECTION,
            value=_EXPONENT,
            holds=pre,
            greatest=0.0,
            beside=_ends_of_depth(seen.blocks, seen.last, PRE),
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


def _size(seen: Figure3Evidence, words: str, *, dropped: bool) -> Claim:
    """The paper does not say whether its gradients have the dropout that it trains with."""
    found = {
        condition: by for condition, by in seen.last.items() if bool(condition.dropout) == dropped
    }
    return claim(
        f"Figure 3(d), its size {words}",
        f"it is around {PUBLISHED}, within {percentage(AROUND, 0)}, of gradients {words}",
        source=_SECTION,
        value="mean over the depths",
        holds={_batches(condition): estimate(by[POST].mean(1)) for condition, by in found.items()},
        **around(PUBLISHED, AROUND * PUBLISHED),
        beside=_ends_of_depth(seen.blocks, found, POST),
    )


def _layer_claims(seen: Figure3Evidence) -> list[Claim]:
    """Panels (a) and (b)."""
    return [*_post_ln_over_layers(seen), *_pre_ln_over_layers(seen)]


def _slopes(seen: Figure3Evidence, placement: str) -> dict[str, Estimate]:
    """Returns the logarithms of the factor from layer to layer, by part."""
    return {_part(key): seen.factors[placement][key] for key in PARTS}


def _post_ln_over_layers(seen: Figure3Evidence) -> list[Claim]:
    slopes = _slopes(seen, POST)
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
            beside=_ends_of_layers(seen.ends[POST]),
        ),
        _as_predicted(
            "Post-LN grows as predicted",
            "it grows slowly in the encoder, and in the decoder because every cross-attention "
            "passes a part of the gradient on to the encoder",
            seen.predicted_factors[POST],
            slopes,
        ),
    ]


def _pre_ln_over_layers(seen: Figure3Evidence) -> list[Claim]:
    return [
        _stays(seen, "a", "W1"),
        _stays(seen, "b", "W2"),
        _as_predicted(
            "Pre-LN falls as predicted",
            "it falls as the stream grows over the layers",
            seen.predicted_factors[PRE],
            _slopes(seen, PRE),
        ),
    ]


def _as_predicted(
    name: str,
    reason: str,
    predicted: Mapping[tuple[str, str], float],
    measured: Mapping[str, Estimate],
) -> Claim:
    """Makes the claim that gradients grow from layer to layer by the predicted factors, whose
    logarithms are given.
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


def _stays(seen: Figure3Evidence, panel: str, matrix: str) -> Claim:
    """Makes the claim on one matrix, in either stack: the paper shows W₁ and W₂ in a panel each."""
    steps = seen.layers - 1
    own = [key for key in PARTS if key[0] == matrix]
    over_all = {_part(key): _times(seen.factors[PRE][key], steps) for key in own}
    return claim(
        f"Figure 3({panel}), Pre-LN's {PRINTED[matrix]} stays",
        f"the norm of the expected gradient of {PRINTED[matrix]} stays almost the same for all "
        f"layers: of a straight line through its logarithms, the last layer's within a factor of "
        f"{SAME:g} of the first's",
        source=_SECTION,
        value="the last layer's over the first's",
        holds=over_all,
        **around(0.0, math.log(SAME)),
        shown=shown_factor,
        beside=_ends_of_layers({key: seen.ends[PRE][key] for key in own}),
    )


def _times(one: Estimate, factor: float) -> Estimate:
    """Returns the estimate of a multiple."""
    return Estimate(
        count=one.count,
        mean=one.mean * factor,
        deviation=one.deviation * factor,
        half_width=one.half_width * factor,
    )


def _warm_up_claims(seen: Figure3Evidence) -> list[Claim]:
    """Post-LN after the warm-up; none where nothing was trained."""
    if not seen.left_after_warm_up:
        return []
    return [
        claim(
            "Figure 3(a, b), Post-LN after the warm-up",
            f"after the warm-up with Adam its gradients are very small: less than {SMALL:g} of "
            "what they were",
            source=_SECTION,
            value="Of what it was in the same layer before, the norm is",
            holds={_part(key): ratio for key, ratio in seen.left_after_warm_up.items()},
            greatest=SMALL,
            shown=lambda ratio: span(ratio.mean.tolist(), 2),
        )
    ]


def _part(key: tuple[str, str]) -> str:
    matrix, stack = key
    return f"{stack} {PRINTED[matrix]}"


def _batches(condition: Condition) -> str:
    return f"batches of {condition.title}"


def _ends_of_depth(
    blocks: Sequence[int], last: Mapping[Condition, Mapping[str, Floats]], placement: str
) -> str:
    texts = []
    for condition, by_placement in last.items():
        found = estimate(by_placement[placement])
        ends = (
            f"{blocks[i]}-{blocks[i]} {interval(found.mean[i], found.half_width[i], 2)}"
            for i in (0, -1)
        )
        texts.append(f"{', '.join(ends)} in {_batches(condition)}")
    return f"Its norm: {'; '.join(texts)}."


def _ends_of_layers(ends: Mapping[tuple[str, str], tuple[float, float]]) -> str:
    texts = (
        f"{_part(key)} {number(first, 2)} to {number(last, 2)}"
        for key, (first, last) in ends.items()
    )
    return f"First to last layer: {'; '.join(texts)}."


def run(config: Figure3Config, pieces: Pieces) -> Findings:
    """Runs the study. Raises UserError for a corpus that is not there, and for a training that
    fails.
    """
    measured = measure(config, pieces)
    numbers = numbers_of(config, measured)
    return Findings(
        conditions=conditions(config, measured),
        claims=claims(evidence(numbers)),
        figures=figures(numbers, trained=f"width {config.warm_up_width}"),
        data=data(numbers, measured),
    )


def judged_again(config: Figure3Config, data: Mapping[str, Any]) -> JudgedAgain:
    """Returns the claims of numbers that a results.json holds."""
    return JudgedAgain(claims=claims(evidence_again(config, data)), data={})


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
    reads_checkpoints=True,
    judged_again=judged_again,
)
