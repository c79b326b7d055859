"""Judges what appendix F claims of the other layers and what it should have, each against measured
gradients.
"""

# S = seeds, L = blocks

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.words import number, percentage, span
from normscope.theory.predict import predict
from normscope.theory.settings import ModelSetting

from ..engine.claims import around, claim, judged, shown_span
from ..engine.estimates import Floats, estimate, part, slopes
from ..engine.judging import Answer, all_hold, between, by_setting, lies_within
from ..engine.page import Claim
from ..theory import corrected, paper
from .measure import LETTERS, W2, StackCase

DECAY = 0.5 * math.log(1.5)
"""The power that appendix F's (2/3)^{1/2} a block adds to ln ‖∂L/∂W₂‖ from one block to the next.
"""
FLAT_WITHIN = 0.1 * DECAY
CROSS_WITHIN = 0.15
"""The tolerance, as a share of the expected slope."""
SAME_WITHIN = 0.1
"""The tolerance around 1 of two blocks that the paper says are alike; the corrected profile has
them √2 apart.
"""
PROFILE_WITHIN = 0.15
"""The tolerance around 1 of measured / expected in every block; the paper and the corrected profile
differ by more in six blocks.
"""
PREDICTED_WITHIN = 0.2
"""The tolerance around 1 in every block; over fewer than 20 draws the intervals of deep Post-LN
stacks are as wide themselves.
"""
EXPONENT_WITHIN = 0.1
"""The tolerance of exponents over depth; those claimed differ by 0.5."""

_SOURCE = "Xiong et al. 2020, appendix F"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Gradient norms over the blocks of one stack, from the first block to the last."""

    placement: str
    case: StackCase
    model: ModelSetting
    norms_SL: Mapping[str, Floats]
    """Root mean squares over a draw's sequences of the gradient's Frobenius norm, by matrix."""
    predicted_L: Mapping[str, Floats]
    cross_share: float
    """The power that cross-attention is predicted to add, per unit of power of a norm's output; 0
    without any.
    """

    @property
    def blocks(self) -> int:
        return self.model.blocks

    def slope(self, name: str = W2) -> Estimate:
        """Fits the slope of ln ‖∂L/∂W‖ over the block, per block: positive where gradients decay
        towards the bottom.
        """
        return estimate(slopes(np.arange(self.blocks), self.norms_SL[name]))

    @property
    def relative(self) -> Estimate:
        """‖∂L/∂W₂‖ of each block over that of the last, (L,)."""
        norms_SL = self.norms_SL[W2]
        return estimate(norms_SL / norms_SL[:, -1:])

    @property
    def over_predicted(self) -> Estimate:
        """Measured / predicted ‖∂L/∂W₂‖, (L,)."""
        return estimate(self.norms_SL[W2] / self.predicted_L[W2])

    @property
    def expected_slope(self) -> float:
        """½ ln(1 + a) for Post-LN, a the share of cross-attention."""
        return 0.5 * math.log1p(self.cross_share)


def profile(
    placement: str, case: StackCase, model: ModelSetting, norms_SL: Mapping[str, Floats]
) -> Profile:
    """Returns the measured curves with what is predicted for them."""
    predictions = predict(placement, model)
    norms, share = predictions[case.looked_at].gradient_norm, 0.0
    if model.stack == "encoder-decoder":
        # Of the memory's tokens, that are normalised: a (1 + (n-1) ρ) / n, ρ their cosine.
        rho = float(
            np.asarray(predictions["encoder"].p)[-1] / np.asarray(predictions["encoder"].q)[-1]
        )
        # fairseq draws queries, keys and values with gain 1/√2, so values halve the power that they
        # read.
        gain = {"theory": corrected.ATTENTION, "paper": 0.5}[case.setting]
        share = gain * corrected.uniform_attention_share(rho, tokens=model.tokens)
    predicted_L = {name: np.asarray(norms[name], dtype=np.float64) for name in LETTERS}
    return Profile(
        placement=placement,
        case=case,
        model=model,
        norms_SL=norms_SL,
        predicted_L=predicted_L,
        cross_share=share,
    )


def pre_profile(one: Profile) -> Floats:
    """√(q_L / q_l) of an encoder, (L,)."""
    return np.array(
        corrected.pre_ln_gradient_profile(
            corrected.pre_ln_stream(one.blocks, tokens=one.model.tokens)
        )
    )


def by_case(profiles: Sequence[Profile]) -> dict[str, list[Profile]]:
    found: dict[str, list[Profile]] = {}
    for one in profiles:
        found.setdefault(one.case.title, []).append(one)
    return found


def over_depth(profiles: Sequence[Profile], block: int) -> dict[str, Estimate]:
    """Fits by case exponents over the number of blocks of one block's gradients (-1 the last), in
    the order of `LETTERS`.

    The shallowest is left out where three remain: orders are for large L.
    """
    found = {}
    for title, own in by_case(profiles).items():
        deep = sorted(own, key=lambda p: p.blocks)[1 if len(own) > 3 else 0 :]
        depths = np.log([p.blocks for p in deep])
        exponents = []
        for name in LETTERS:
            norms_SX = np.stack([p.norms_SL[name][:, block] for p in deep], 1)
            exponents.append(slopes(depths, norms_SX))
        found[title] = estimate(np.stack(exponents, 1))
    return found


def first_over_post(
    pre: Sequence[Profile], post: Sequence[Profile]
) -> dict[tuple[str, int], float]:
    """First block's mean ‖∂L/∂W₂‖ of Pre-LN over Post-LN's, by case and depth; both are in the same
    order.
    """
    shares = {}
    for one, beside in zip(pre, post, strict=True):
        shares[one.case.title, one.blocks] = _first_norm(one) / _first_norm(beside)
    return shares


def _first_norm(one: Profile) -> float:
    """Returns the first block's mean ‖∂L/∂W₂‖."""
    return float(one.norms_SL[W2][:, 0].mean())


def claims(post: Sequence[Profile], pre: Sequence[Profile]) -> list[Claim]:
    """Judges profiles of Post-LN and Pre-LN in the same cases and depths."""
    return [*_of_post_ln(post), *_of_pre_ln(pre, post), _prediction([*post, *pre])]


def _of_post_ln(post: Sequence[Profile]) -> list[Claim]:
    """Exponential decay, the decay through cross-attention in its place, and none without."""
    plain = [p for p in post if not p.cross_share]
    decoders = [p for p in post if p.case.looked_at == "decoder"]
    expected = _over_depths([p for p in post if p.cross_share], lambda p: p.expected_slope)
    return [
        judged(
            name="Appendix F, Post-LN: exponential decay",
            statement=(
                "“There exists a term O((2/3)^{(L−l)/2}), which exponentially decreases as l goes "
                f"smaller”: a factor {paper.post_ln_gradient_profile(2)[0]:.3f} a block, "
                f"{DECAY:.3f} in ln ‖∂L/∂W₂‖. Held to be so where it is more than half of that."
            ),
            source=_SOURCE,
            found=f"Slope of ln ‖∂L/∂W₂‖ per block: {_slopes(post)}.",
            holds=_each(post, lambda p: between(p.slope(), least=DECAY / 2)),
        ),
        judged(
            name="Corrected, Post-LN: decoders decay through cross-attention",
            statement="A decoder's gradient falls by 1/√(1+a) a block, a being the power that "
            "cross-attention adds, because that part of what passes the norm came from the "
            "encoder. Expected slope per block: 0 without cross-attention, within "
            f"{FLAT_WITHIN:.3f}; {expected}, within {percentage(CROSS_WITHIN, 0)}.",
            source="corrected",
            found=f"Slope of ln ‖∂L/∂W₂‖ per block: {_slopes(decoders)}.",
            holds=_each(
                decoders,
                lambda p: lies_within(
                    p.slope(), p.expected_slope, CROSS_WITHIN * p.expected_slope or FLAT_WITHIN
                ),
            ),
        ),
        judged(
            name="Corrected, Post-LN: no decay without cross-attention",
            statement=(
                "The residual feed-forward's gain cancels the norm's factor: a slope of 0 within "
                f"{FLAT_WITHIN:.3f}."
            ),
            source="corrected",
            found=f"Slope of ln ‖∂L/∂W₂‖ per block: {_slopes(plain)}. First block over last: "
            f"{_over_depths(plain, lambda p: float(p.relative.mean[0]))}.",
            holds=_each(plain, lambda p: lies_within(p.slope(), 0.0, FLAT_WITHIN)),
        ),
    ]


def _of_pre_ln(pre: Sequence[Profile], post: Sequence[Profile]) -> list[Claim]:
    """Along a stack, as the paper has it and as it is; then the ends over the depth."""
    encoders = [p for p in pre if p.case.stack == "encoder"]
    return [*_along_pre_ln(pre, encoders), *_ends_of_pre_ln(pre, post, encoders)]


def _along_pre_ln(pre: Sequence[Profile], encoders: Sequence[Profile]) -> list[Claim]:
    """Pre-LN's gradients from block to block."""

    def middle(one: Profile) -> Estimate:
        return part(one.relative, one.blocks // 2 - 1)

    return [
        judged(
            name="Appendix F, Pre-LN: independent of the layer",
            statement=(
                "The gradient “is independent of l when l is large”: from the middle block to the "
                f"last it stays the same, within {percentage(SAME_WITHIN, 0)}."
            ),
            source=_SOURCE,
            found=f"Middle block over last: {_over_depths(pre, lambda p: float(middle(p).mean))}.",
            holds=_each(pre, lambda p: lies_within(middle(p), 1.0, SAME_WITHIN)),
        ),
        judged(
            name="Corrected, Pre-LN: as 1/√q",
            statement=(
                "‖∂L/∂W₂‖ of block l over the last's is √(q_L / q_l), q = E‖x‖²/d of the stream: "
                "exact in mean field where gradients of positions have nothing in common. Held to "
                f"be so within {100 * PROFILE_WITHIN:.0f} % in every block."
            ),
            source="corrected",
            found="First block over last: "
            f"{_over_depths(encoders, lambda p: float(p.relative.mean[0]))}; expected: "
            f"{_over_depths(encoders, lambda p: float(pre_profile(p)[0]))}.",
            holds=_each(
                encoders,
                lambda p: lies_within(
                    estimate(p.norms_SL[W2] / p.norms_SL[W2][:, -1:] / pre_profile(p)),
                    1.0,
                    PROFILE_WITHIN,
                ),
            ),
        ),
    ]


def _ends_of_pre_ln(
    pre: Sequence[Profile], post: Sequence[Profile], encoders: Sequence[Profile]
) -> list[Claim]:
    """The first and the last block of Pre-LN over the number of blocks."""
    firsts, lasts = over_depth(pre, 0), over_depth(pre, -1)
    ratios = first_over_post(pre, post)
    below = _over_depths(encoders, lambda p: ratios[p.case.title, p.blocks])
    return [
        claim(
            "Section 3.3, Pre-LN: 1/√L at the top",
            "The last block's gradient falls as 1/√L: an exponent of −½ within "
            f"{EXPONENT_WITHIN:g}.",
            source="Xiong et al. 2020, theorem 1",
            value="exponent of the last block's ‖∂L/∂W₂‖ over L",
            holds={title: part(found, 0) for title, found in lasts.items()},
            **around(-0.5, EXPONENT_WITHIN),
        ),
        claim(
            "Section 3.3, Pre-LN: 1/√L for all parameters",
            "“The gradients of all parameters will be normalized by √L”: the first block's fall as "
            f"1/√L too, with an exponent of −½ within {EXPONENT_WITHIN:g}.",
            source="Xiong et al. 2020, section 3.3",
            value="exponent of the first block's gradients over L, least to greatest of W₂, W₁ and "
            "W_V",
            holds=firsts,
            **around(-0.5, EXPONENT_WITHIN),
            shown=shown_span,
        ),
        claim(
            "Corrected, Pre-LN: the bottom does not fall with depth",
            "The first block's gradient has nothing of 1/√L in it: an exponent of 0 within "
            f"{EXPONENT_WITHIN:g}.",
            source="corrected",
            value="exponent of the first block's ‖∂L/∂W₂‖ over L",
            holds={title: part(found, 0) for title, found in firsts.items()},
            **around(0.0, EXPONENT_WITHIN),
            beside=f"Over Post-LN's: {below}.",
        ),
    ]


def _prediction(profiles: Sequence[Profile]) -> Claim:
    worst = max(profiles, key=lambda p: float(np.abs(np.log(p.over_predicted.mean)).max()))
    answers: dict[tuple[str, int], list[Answer]] = {}
    for one in profiles:
        answer = lies_within(one.over_predicted, 1.0, PREDICTED_WITHIN)
        answers.setdefault((named(one.placement).title, one.blocks), []).append(answer)
    return judged(
        name="Prediction: every block",
        statement=(
            f"The mean field gives ‖∂L/∂W₂‖ of every block within {100 * PREDICTED_WITHIN:.0f} %, "
            "in all stacks."
        ),
        source="this program's theory",
        found=f"Measured / predicted is furthest from 1 in {named(worst.placement).title}, "
        f"{worst.case.title} of {worst.blocks} blocks: {shown_span(worst.over_predicted)}.",
        holds=by_setting({where: all_hold(found) for where, found in answers.items()}, "blocks"),
    )


def _each(profiles: Iterable[Profile], holds: Callable[[Profile], Answer]) -> dict[str, Answer]:
    """Returns the answers by case, depths together where they agree."""
    return by_setting({(p.case.title, p.blocks): holds(p) for p in profiles}, "blocks")


def _slopes(profiles: Sequence[Profile]) -> str:
    widest = max(float(p.slope().half_width) for p in profiles)
    return f"{_over_depths(profiles, lambda p: float(p.slope().mean))} (± {number(widest)} at most)"


def _over_depths(profiles: Sequence[Profile], value: Callable[[Profile], float]) -> str:
    """ "encoder 0.001 to 0.002; …": least and greatest over the depths of each case."""
    spans = []
    for title, own in by_case(profiles).items():
        values = [value(p) for p in own]
        spans.append(f"{title} {span(values)}")
    return "; ".join(spans)
