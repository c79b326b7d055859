"""The statements of lemmas 1 to 3, each as it is printed and as it holds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from normscope.measure import Estimate
from normscope.report.words import number, percentage, span

from ..engine.claims import around, by_names, claim, judged, shown_span
from ..engine.estimates import Floats, part, with_interval
from ..engine.judging import Answer, all_hold, by_place, each_between
from ..engine.page import Claim
from ..theory import corrected, paper
from . import measure

LemmaEstimates = Mapping[str, Estimate]
"""Means over seeds with 95 % intervals, by what was measured: see `study.estimated`."""
EQUAL_WITHIN = 0.02
"""A share of the value: its whole interval must be nearer than this."""
PREDICTED_WITHIN = 0.03
"""The same, for values that are predicted."""
BOUND_WITHIN = 0.05
"""The share by which ‖J‖ may exceed √d / ‖x‖ and still count as equal."""
NEAR = 2.0
"""A factor within which a size is called that."""
_ROUNDING = 1e-3
"""Autograd and formula differ by less where they agree; both are in float64 and have no spread."""


def claims(
    config: measure.LemmasConfig,
    of: LemmaEstimates,
    jacobian: Sequence[Mapping[str, Any]],
    hidden_off: float,
) -> list[Claim]:
    """jacobian: by seed; hidden_off: how far ‖x‖² / d of a state is from 1."""
    return [
        _lemma_1(config, of),
        _every_feature(config, of["relu beyond"]),
        *_post_ln(config, of, hidden_off),
        *pre_ln(config, of["pre-ln"]),
        *_lemma_3(config, of, jacobian),
    ]


def _lemma_1(config: measure.LemmasConfig, of: LemmaEstimates) -> Claim:
    spread = float(of["relu deviation"].mean.mean())
    expected = math.sqrt(5 / config.width)
    share = paper.relu_squared_norm(width=1)
    return claim(
        "Lemma 1",
        f"E‖ReLU(X)‖² = σ² d / 2 for X ~ N(0, σ² I_d), within {percentage(EQUAL_WITHIN, 0)}.",
        source="Xiong et al. 2020, lemma 1",
        value="E‖ReLU(X)‖² / (σ² d)",
        holds=by_names(of["relu"], [f"σ = {sigma:g}" for sigma in config.sigmas]),
        **around(share, share * EQUAL_WITHIN),
        shown=partial(with_interval, decimals=5),
        beside=(
            f"The standard deviation of a single vector's is {percentage(spread, 2)} of the mean, "
            f"√(5/d) = {percentage(expected, 2)}."
        ),
    )


def _every_feature(config: measure.LemmasConfig, beyond: Estimate) -> Claim:
    edge = 2 * math.log(100 * config.width)
    exact = 1 - (1 - math.erfc(math.sqrt(edge / 2)) / 2) ** config.width
    return claim(
        "Theorem 1, the 0.99 of one position",
        "With probability at least 0.99 every feature has ReLU(x W₁)² ≤ 2 ln(100 d), "
        f"{number(edge, 2)} here.",
        source="Xiong et al. 2020, appendix E, after eq. (40)",
        value="share of vectors with a feature beyond",
        holds=by_names(beyond, [f"σ = {sigma:g}" for sigma in config.sigmas]),
        greatest=0.01,
        shown=partial(with_interval, decimals=5),
        beside=f"Exactly it is {number(exact, 5)}.",
    )


def _post_ln(config: measure.LemmasConfig, of: LemmaEstimates, hidden_off: float) -> list[Claim]:
    """Makes the claims on what the last norm of a block reads; on all steps, each of which holds
    where it does in all blocks; and on the state.
    """
    bounds = {
        step: np.array(paper.post_ln_squared_norm(step, width=1))
        for step in range(1, measure.STEPS)
    }
    steps = [all_hold(_within(of[f"step {step}"], *ends)) for step, ends in bounds.items()]
    ranges = (
        f"x{sup} {shown_span(of[f'step {step}'])}"
        for step, sup in zip(bounds, "¹²³⁴⁵", strict=True)
    )
    last, hidden = of["step 5"], of["step 0"]
    expected = corrected.post_ln_squared_norm(width=1)
    return [
        judged(
            name="Lemma 2, Post-LN, before the last norm",
            statement=(
                f"E‖x^{{post,5}}‖² = 3d/2 in every layer, within {percentage(EQUAL_WITHIN, 0)}."
            ),
            source="Xiong et al. 2020, lemma 2, eq. (13)",
            found=f"{number(last.mean.mean(), 4)} d on average over blocks, from "
            f"{span(last.mean.tolist(), 4)} d, each ± {number(last.half_width.max(), 4)} d at "
            "most.",
            holds=by_place(_within(last, expected, expected), "layer"),
        ),
        judged(
            name="Lemma 2, Post-LN, the steps of Table 1",
            statement=(
                "E‖x^{post,1}‖² ≤ d ≤ E‖x^{post,2}‖² ≤ 2d, E‖x^{post,3}‖² = d, E‖x^{post,4}‖² = "
                f"d/2, E‖x^{{post,5}}‖² = 3d/2, each within {percentage(EQUAL_WITHIN, 0)}."
            ),
            source="Xiong et al. 2020, proof of lemma 2, eq. (2) to (13)",
            found=f"Over blocks, in units of d: {'; '.join(ranges)}.",
            holds=by_place(steps, "step"),
        ),
        judged(
            name="Lemma 2, Post-LN, as digests have it",
            statement="The hidden state itself has E‖x‖² = 3d/2.",
            source="digests of the paper; the paper says it of x^{post,5}",
            found=(
                f"{number(hidden.mean.mean(), 4)} d: a norm's output has squared norm d up to its "
                f"ε, at most {number(hidden_off, 6)} d off in any token."
            ),
            holds=by_place(_within(hidden, 1.5, 1.5), "layer"),
        ),
    ]


def _within(found: Estimate, least: float, greatest: float) -> list[Answer]:
    """Place by place, `EQUAL_WITHIN` more or less: of bounds too, since attention meets its own
    where tokens are alike, and no number of draws tells from which side a mean meets a bound.
    """
    return each_between(found, (1 - EQUAL_WITHIN) * least, (1 + EQUAL_WITHIN) * greatest)


def pre_ln(config: measure.LemmasConfig, q: Estimate) -> list[Claim]:
    """The paper's bounds in both ways to count, the digests' and the value between them; q: by
    completed blocks.
    """
    blocks = config.blocks
    after = part(q, slice(1, None))
    most = PREDICTED_WITHIN
    bounds_X2, stated_X2 = completed_bounds(blocks), counted_bounds(blocks)
    outside = [answer is False for answer in each_between(part(q, slice(blocks)), *stated_X2.T)]
    firsts = zip(q.mean[:4], stated_X2[:4, 0], strict=False)
    predicted = np.array([one for one, _ in corrected.pre_ln_stream(blocks, tokens=config.tokens)])
    off = 100 * np.abs(q.mean / predicted - 1)
    at = int(off.argmax())
    bounds = "(1 + l/2) d ≤ E‖x_l‖² ≤ (1 + 3l/2) d for l > 0, x_l the"
    end = f"{with_interval(part(q, -1), 2)} after {blocks} blocks"
    return [
        judged(
            name="Lemma 2, Pre-LN, l as section 3.1 counts",
            statement=f"{bounds} input of layer l.",
            source="Xiong et al. 2020, lemma 2 with section 3.1",
            found="E‖x_l‖² / d of the first inputs, and the lower bound: "
            f"{', '.join(f'{number(x, 2)} against {number(bound, 2)}' for x, bound in firsts)}. "
            f"{sum(outside)} of {blocks} layers lie outside.",
            holds=by_place(each_between(part(q, slice(blocks)), *stated_X2.T), "layer"),
        ),
        judged(
            name="Lemma 2, Pre-LN, l completed blocks",
            statement=f"{bounds} state after l blocks.",
            source="Xiong et al. 2020, eq. (14) to (20), read as its proof counts",
            found=f"E‖x_l‖² / d is {end}; bounds "
            f"{' and '.join(number(bound, 2) for bound in bounds_X2[-1])}.",
            holds=by_place(each_between(after, *bounds_X2[1:].T), "depth"),
        ),
        judged(
            name="Lemma 2, Pre-LN, as digests have it",
            statement="E‖x_l‖² ≥ (1 + 2l) d.",
            source="digests of the paper; the paper has (1 + l/2) d",
            found=(
                f"{end}, where {1 + 2 * blocks} is asked for; that is more than the paper's upper "
                f"bound {number(bounds_X2[-1, 1], 2)}."
            ),
            holds=by_place(
                each_between(after, 1 + 2 * np.arange(1, blocks + 1), math.inf), "depth"
            ),
        ),
        judged(
            name="Pre-LN, the value between the bounds",
            statement=f"The mean-field recursion gives E‖x_l‖² within {100 * most:.0f} %.",
            source="corrected",
            found=f"{number(q.mean[-1], 2)} measured, {number(predicted[-1], 2)} predicted after "
            f"{blocks} blocks; at most {number(off[at], 2)} % ± "
            f"{number(100 * q.half_width[at] / predicted[at], 2)} % off (l = {at}).",
            holds=by_place(
                each_between(q, (1 - most) * predicted, (1 + most) * predicted), "depth", first=0
            ),
        ),
    ]


def completed_bounds(blocks: int) -> Floats:
    """Lemma 2's of E‖x_l‖² / d after l = 0 … L blocks, as its proof counts: (L + 1, 2)."""
    return np.array([corrected.pre_ln_squared_norm(done, width=1) for done in range(blocks + 1)])


def counted_bounds(layers: int) -> Floats:
    """The same of what layer l = 1 … L reads, as section 3.1 counts: (L, 2)."""
    return np.array([paper.pre_ln_squared_norm(layer, width=1) for layer in range(1, layers + 1)])


def _lemma_3(
    config: measure.LemmasConfig, of: LemmaEstimates, jacobian: Sequence[Mapping[str, Any]]
) -> list[Claim]:
    """LayerNorm's sphere; its Jacobian with the mean of x taken off and as if x had none;
    RMSNorm's, with none off.
    """
    return [
        *_layer_norm_exactly(config, _over_seeds(jacobian, "layer-norm")),
        *_layer_norm_bounds(config, of["layer-norm over claimed"]),
        _rms_norm_exactly(_over_seeds(jacobian, "rms-norm")),
    ]


def _layer_norm_exactly(config: measure.LemmasConfig, layer: Mapping[str, Any]) -> list[Claim]:
    """LayerNorm's sphere and its Jacobian. layer: by autograd, over all seeds."""
    alike = (layer["equal"], layer["zero"]) == (str(config.singular_width - 2), "2")
    return [
        judged(
            name="The sphere of LayerNorm",
            statement="‖LN(x)‖² = d whatever x, unless all its features are equal.",
            source="Xiong et al. 2020, section 3.3 and proof of lemma 2",
            found=(
                f"Without ε at most {layer['off sphere']:.1e} off as a share, whatever the mean of "
                "x."
            ),
            holds={"all": layer["off sphere"] < _ROUNDING},
        ),
        judged(
            name="Lemma 3, exactly",
            statement=(
                "‖J_LN(x)‖₂ = √d / ‖x - mean‖₂; d - 2 singular values are equal and two are 0."
            ),
            source="Xiong et al. 2020, eq. (28); corrected",
            found=f"By autograd at most {layer['off']:.1e} off as a share; of "
            f"{config.singular_width} singular values {layer['equal']} are equal and "
            f"{layer['zero']} are 0.",
            holds={"all": layer["off"] < _ROUNDING and alike},
        ),
    ]


def _layer_norm_bounds(config: measure.LemmasConfig, over: Estimate) -> list[Claim]:
    """The paper's bound and the digests' size of the Jacobian, as if x had no mean.

    over: ‖J_LN(x)‖₂ over √d / ‖x‖₂, by the mean of x.
    """
    root = math.sqrt(config.width)
    means = [f"a mean of {mean:g}" for mean in config.means]
    over_digest = replace(
        over,
        mean=over.mean / root,
        deviation=over.deviation / root,
        half_width=over.half_width / root,
    )
    return [
        claim(
            "Lemma 3, as stated",
            f"‖J_LN(x)‖₂ = O(√d / ‖x‖₂), whatever x: at most {percentage(BOUND_WITHIN, 0)} above "
            "it.",
            source="Xiong et al. 2020, lemma 3, eq. (29)",
            value="‖J_LN(x)‖₂ over √d / ‖x‖₂, x ~ N(0, I) plus a mean",
            holds=by_names(over, means),
            greatest=1 + BOUND_WITHIN,
            beside="The ratio grows as √(1 + mean²), without a bound.",
        ),
        claim(
            "Lemma 3, as digests have it",
            f"‖J_LN(x)‖₂ is about d / ‖x‖₂, within a factor of {NEAR:g}.",
            source="digests of the paper; the paper has √d / ‖x‖₂",
            value=f"‖J_LN(x)‖₂ over d / ‖x‖₂ at d = {config.width}, x ~ N(0, I) plus a mean",
            holds=by_names(over_digest, means),
            least=1 / NEAR,
            greatest=NEAR,
        ),
    ]


def _rms_norm_exactly(rms: Mapping[str, Any]) -> Claim:
    """RMSNorm's Jacobian. rms: by autograd, over all seeds."""
    return judged(
        name="Lemma 3, RMSNorm",
        statement="‖J_RMS(x)‖₂ = √d / ‖x‖₂ exactly, with one singular value 0.",
        source="corrected",
        found=(
            f"By autograd at most {rms['off']:.1e} off as a share, whatever the mean; singular "
            f"values that are 0: {rms['zero']}."
        ),
        holds={"all": rms["off"] < _ROUNDING and rms["zero"] == "1"},
    )


def _over_seeds(jacobian: Sequence[Mapping[str, Any]], norm: str) -> dict[str, Any]:
    """Returns the largest share by which autograd and formula differ, and all counts that there
    were, in words.
    """
    of_norm = [one[norm] for one in jacobian]
    found: dict[str, Any] = {}
    for share in ("off", "off sphere"):
        found[share] = max(one[share] for one in of_norm)
    for count in ("equal", "zero"):
        found[count] = " or ".join(map(str, sorted({one[count] for one in of_norm})))
    return found
