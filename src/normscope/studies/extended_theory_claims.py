"""What appendix F claims of the other layers and what it should have, each against measured gradients."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..measure import Estimate
from ..placement import named
from ..report.study_contents import Claim
from ..theory import corrected, paper
from .evidence import Floats, all_hold, estimate, exponent, gathered, joined, judged, lies_within, told
from .profiles import LETTERS, W2, Profile

DECAY = 0.5 * math.log(1.5)
"""What appendix F's (2/3)^{1/2} a block adds to ln ‖∂L/∂W₂‖ from one block to the next."""
FLAT_WITHIN = 0.1 * DECAY
CROSS_WITHIN = 0.15
"""Of the expected slope."""
SAME_WITHIN = 0.1
"""Of 1, for two blocks that the paper says are alike; the corrected profile has them √2 apart."""
PROFILE_WITHIN = 0.15
"""Of 1, for measured / expected in every block; the paper and the corrected profile differ by more in six blocks."""
EXPONENT_WITHIN = 0.1
"""Of exponents over depth; those claimed differ by 0.5."""

_SOURCE = "Xiong et al. 2020, appendix F"

Holds = dict[str, bool | None]


def claims(post: Sequence[Profile], pre: Sequence[Profile]) -> list[Claim]:
    """Of profiles of Post-LN and Pre-LN in the same cases and depths."""
    return [
        _decay(post),
        _cross(post),
        _flat_post([p for p in post if not p.cross_share]),
        _independent(pre),
        _pre_profile([p for p in pre if p.case.stack == "encoder"]),
        _top(pre),
        _everywhere(pre),
        _bottom(pre, post),
        _prediction([*post, *pre]),
    ]


def each(profiles: Iterable[Profile], holds: Callable[[Profile], bool | None]) -> Holds:
    """By case, depths together where they agree."""
    return gathered({(p.case.title, p.blocks): holds(p) for p in profiles}, "blocks")


def at_depth(profiles: Sequence[Profile], names: Sequence[str], block: int) -> dict[str, Estimate]:
    """Exponent over the number of blocks of one block's gradient (-1 the last), by matrix, for profiles of one case.

    The shallowest is left out where three remain: orders are for large L.
    """
    deep = sorted(profiles, key=lambda p: p.blocks)
    deep = deep[1:] if len(deep) > 3 else deep
    depths = [p.blocks for p in deep]
    return {name: exponent(depths, np.stack([p.norms_SL[name][:, block] for p in deep], 1)) for name in names}


def by_case(profiles: Iterable[Profile]) -> dict[str, list[Profile]]:
    found: dict[str, list[Profile]] = {}
    for one in profiles:
        found.setdefault(one.case.title, []).append(one)
    return found


def _decay(post: Sequence[Profile]) -> Claim:
    def holds(one: Profile) -> bool | None:
        low, high = float(one.slope().low), float(one.slope().high)
        return True if low > DECAY / 2 else False if high < DECAY / 2 else None

    factor = paper.post_ln_gradient_profile(2)[0]
    return judged(
        name="Appendix F, Post-LN: exponential decay",
        statement="“There exists a term O((2/3)^{(L-l)/2}), which exponentially decreases as l goes smaller”: a factor "
        f"{factor:.3f} a block, {DECAY:.3f} in ln ‖∂L/∂W₂‖. Held to be so where it is more than half of that.",
        source=_SOURCE,
        found=f"Slope of ln ‖∂L/∂W₂‖ per block – {_slopes(post)}.",
        holds=each(post, holds),
    )


def _cross(post: Sequence[Profile]) -> Claim:
    crossed = [p for p in post if p.cross_share]
    expected = _listed(crossed, lambda p: f"{_expected_slope(p):.3f}")
    return judged(
        name="Corrected, Post-LN: decoders decay through cross-attention",
        statement="A decoder's gradient falls by 1/√(1+a) a block, a being the power that cross-attention adds, "
        f"because that part of what passes the norm came from the encoder. Expected slope per block: 0 without "
        f"cross-attention; {expected}.",
        source="corrected",
        found=f"Slope of ln ‖∂L/∂W₂‖ per block – {_slopes([p for p in post if p.case.looked_at == 'decoder'])}.",
        holds=each(
            [p for p in post if p.case.looked_at == "decoder"],
            lambda p: lies_within(p.slope(), _expected_slope(p), CROSS_WITHIN * _expected_slope(p) or FLAT_WITHIN),
        ),
    )


def _expected_slope(one: Profile) -> float:
    return 0.5 * math.log1p(one.cross_share)


def _flat_post(post: Sequence[Profile]) -> Claim:
    return judged(
        name="Corrected, Post-LN: no decay without cross-attention",
        statement=f"The residual feed-forward's gain cancels the norm's factor: a slope of 0 within {FLAT_WITHIN:.3f}.",
        source="corrected",
        found=f"Slope of ln ‖∂L/∂W₂‖ per block – {_slopes(post)}. First block over last: {_listed(post, _ends)}.",
        holds=each(post, lambda p: lies_within(p.slope(), 0.0, FLAT_WITHIN)),
    )


def _independent(pre: Sequence[Profile]) -> Claim:
    def middle(one: Profile) -> Estimate:
        relative_SL = one.norms_SL[W2] / one.norms_SL[W2][:, -1:]
        return estimate(relative_SL[:, one.blocks // 2 - 1])

    return judged(
        name="Appendix F, Pre-LN: independent of the layer",
        statement="The gradient “is independent of l when l is large”: from the middle block to the last it stays the "
        "same.",
        source=_SOURCE,
        found=f"Middle block over last: {_listed(pre, lambda p: told(middle(p)))}.",
        holds=each(pre, lambda p: lies_within(middle(p), 1.0, SAME_WITHIN)),
    )


def pre_profile(one: Profile) -> Floats:
    """√(q_L / q_l) of an encoder, (L,)."""
    stream = corrected.pre_ln_stream(one.blocks, tokens=one.model.tokens)
    return np.array(corrected.pre_ln_gradient_profile(stream))


def _pre_profile(pre: Sequence[Profile]) -> Claim:
    def ratio(one: Profile) -> Estimate:
        return estimate(one.norms_SL[W2] / one.norms_SL[W2][:, -1:] / pre_profile(one))

    return judged(
        name="Corrected, Pre-LN: as 1/√q",
        statement="‖∂L/∂W₂‖ of block l over the last's is √(q_L / q_l), q = E‖x‖²/d of the stream: exact in mean field "
        f"where gradients of positions have nothing in common. Held to be so within {100 * PROFILE_WITHIN:.0f} % in "
        "every block.",
        source="corrected",
        found="First block over last: " + _listed(pre, lambda p: f"{_ends(p)} against {pre_profile(p)[0]:.3f}") + ".",
        holds=each(pre, lambda p: lies_within(ratio(p), 1.0, PROFILE_WITHIN)),
    )


def _top(pre: Sequence[Profile]) -> Claim:
    found = {title: at_depth(own, [W2], -1)[W2] for title, own in by_case(pre).items()}
    return judged(
        name="Section 3.3, Pre-LN: 1/√L at the top",
        statement="The last block's gradient falls as 1/√L.",
        source="Xiong et al. 2020, theorem 1",
        found="Exponent of the last block's ‖∂L/∂W₂‖ over L: " + _exponents(found) + ".",
        holds={title: lies_within(value, -0.5, EXPONENT_WITHIN) for title, value in found.items()},
    )


def _everywhere(pre: Sequence[Profile]) -> Claim:
    found = {title: at_depth(own, list(LETTERS), 0) for title, own in by_case(pre).items()}
    answers = {
        title: [lies_within(value, -0.5, EXPONENT_WITHIN) for value in values.values()]
        for title, values in found.items()
    }
    return judged(
        name="Section 3.3, Pre-LN: 1/√L for all parameters",
        statement="“The gradients of all parameters will be normalized by √L”: the first block's fall as 1/√L too.",
        source="Xiong et al. 2020, section 3.3",
        found="Exponent of the first block's gradients over L, for "
        + joined(list(LETTERS.values()))
        + ": "
        + "; ".join(f"{title}: {', '.join(map(told, values.values()))}" for title, values in found.items())
        + ".",
        holds={title: all_hold(found) for title, found in answers.items()},
    )


def _bottom(pre: Sequence[Profile], post: Sequence[Profile]) -> Claim:
    found = {title: at_depth(own, [W2], 0)[W2] for title, own in by_case(pre).items()}
    partner = {(p.case, p.blocks): p for p in post}
    deepest = [own[-1] for own in by_case(pre).values()]
    beside = _listed(deepest, lambda p: f"{_first(p):.3f} against {_first(partner[p.case, p.blocks]):.3f}")
    return judged(
        name="Corrected, Pre-LN: the bottom does not fall with depth",
        statement="The first block's gradient has nothing of 1/√L in it: an exponent of 0.",
        source="corrected",
        found=f"Exponent of the first block's ‖∂L/∂W₂‖ over L: {_exponents(found)}. Beside Post-LN's: {beside}.",
        holds={title: lies_within(value, 0.0, EXPONENT_WITHIN) for title, value in found.items()},
    )


def _prediction(profiles: Sequence[Profile]) -> Claim:
    def furthest(one: Profile) -> float:
        return float(np.abs(np.log(one.over_predicted.mean)).max())

    worst = max(profiles, key=furthest)
    low, high = float(worst.over_predicted.mean.min()), float(worst.over_predicted.mean.max())
    answers: dict[tuple[str, int], list[bool | None]] = {}
    for one in profiles:
        answer = lies_within(one.over_predicted, 1.0, PROFILE_WITHIN)
        answers.setdefault((named(one.placement).title, one.blocks), []).append(answer)
    return judged(
        name="Prediction: every block",
        statement=f"The mean field gives ‖∂L/∂W₂‖ of every block within {100 * PROFILE_WITHIN:.0f} %, in all stacks.",
        source="this program's theory",
        found=f"Measured / predicted is furthest from 1 in {named(worst.placement).title}, {worst.case.title} of "
        f"{worst.blocks} blocks: {low:.3f} to {high:.3f}.",
        holds=gathered({where: all_hold(found) for where, found in answers.items()}, "blocks"),
    )


def _slopes(profiles: Sequence[Profile]) -> str:
    return _listed(profiles, lambda p: told(p.slope()))


def _listed(profiles: Sequence[Profile], say: Callable[[Profile], str]) -> str:
    """ "encoder: 0.001 at 6, 0.002 at 12; …" """
    return "; ".join(
        f"{title}: " + ", ".join(f"{say(p)} at {p.blocks}" for p in own) for title, own in by_case(profiles).items()
    )


def _exponents(found: dict[str, Estimate]) -> str:
    return "; ".join(f"{title}: {told(value)}" for title, value in found.items())


def _first(one: Profile) -> float:
    return float(one.norms_SL[W2][:, 0].mean())


def _ends(one: Profile) -> str:
    return f"{float(one.relative.mean[0]):.3f}"
