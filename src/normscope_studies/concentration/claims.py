"""Judges what is said of how squared norms lie around their mean: Definition 1, the tails that it
is taken from, and Theorem 1's probability.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch

from normscope.measure import Estimate
from normscope.placement import named

from ..engine.claims import judged
from ..engine.estimates import NORMAL, Floats, part, with_interval
from ..engine.judging import Answer, SettingGroup, all_hold, answers, between, by_place, number_of
from ..engine.page import Claim
from ..theory import corrected, paper
from .measure import STACKS, ConcentrationConfig, Quantity

Concentrations = dict[str, dict[Quantity, list[dict[str, Estimate]]]]
"""Numbers of one placement: by stack, quantity, depth, and what `summarised` names."""
TailSide = Literal["above", "outside"]

QUANTITIES: dict[Quantity, str] = {
    "state": "hidden state",
    "read": "what the feed-forward's norm reads",
}
PAPER_NAMES = {
    ("post-ln", "read"): "x^{post,5}",
    ("pre-ln", "read"): "x^{pre,3}",
    ("pre-ln", "state"): "x^{pre}",
}
"""Table 1's names for these."""
SIDES: dict[TailSide, str] = {"above": "Z > (1 + ε) EZ", "outside": "|Z − EZ| > ε EZ"}
_CONSTANT = 1e-3
"""A norm's output: its squared norm spreads by less, as a share of itself."""
_SECTION = "Xiong et al. 2020, section 3.4"


def bounded(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> list[Claim]:
    """(ε, δ)-boundedness of each placement's quantities: as Definition 1 has it, and with both
    sides.
    """
    made = []
    for placement, stacks in found.items():
        for quantity in QUANTITIES:
            name, depths = name_of(placement, quantity), _places(stacks, quantity)
            if stacks["encoder"][quantity] and constant(stacks, quantity):
                made.append(_constant_claim(config, name, depths))
            elif stacks["encoder"][quantity]:
                made += [_bounded_claim(config, name, depths, side) for side in SIDES]
    return made


def _places(
    stacks: Concentrations, quantity: Quantity
) -> dict[tuple[str, int], dict[str, Estimate]]:
    """Returns them by stack and completed blocks, or block: without the embedding, which is no
    hidden state of a layer.
    """
    first = 0 if quantity == "state" else 1
    return {
        (stack, depth): one
        for stack in STACKS
        for depth, one in enumerate(stacks[stack][quantity], first)
        if depth
    }


def constant(stacks: Concentrations, quantity: Quantity) -> bool:
    """Returns whether it is the same for all tokens behind the embedding, as a norm's output is."""
    return all(
        float(one["deviation"].mean) < _CONSTANT for one in _places(stacks, quantity).values()
    )


def delta_of(config: ConcentrationConfig, one: Mapping[str, Estimate], side: TailSide) -> Estimate:
    """δ at the claimed ε, over models."""
    return part(one[side], config.epsilons.index(config.epsilon))


def _within_delta(
    config: ConcentrationConfig, one: Mapping[str, Estimate], side: TailSide
) -> Answer:
    """Judges whether δ at the claimed ε is at most the claimed one."""
    return between(delta_of(config, one, side), greatest=config.delta)


def name_of(placement: str, quantity: Quantity) -> str:
    """Returns the name of a quantity, such as "Post-LN, what the feed-forward's norm reads
    (x^{post,5})".
    """
    name = f"{named(placement).title}, {QUANTITIES[quantity]}"
    short = PAPER_NAMES.get((placement, quantity))
    return f"{name} ({short})" if short else name


def _constant_claim(
    config: ConcentrationConfig, name: str, found: Mapping[tuple[str, int], dict[str, Estimate]]
) -> Claim:
    deviation = max(float(one["deviation"].mean) for one in found.values())
    return judged(
        name=f"Bounded: {name}",
        statement=f"‖x‖² is ({config.epsilon:g}, {config.delta:g})-bounded.",
        source=_SECTION,
        found=(
            "Trivially: a norm's output has the same squared norm in every token, up to a standard "
            f"deviation of {deviation:.1e} of it. What Theorem 1 needs is asked of what norms read."
        ),
        holds={
            "every depth": all_hold(
                [_within_delta(config, one, "outside") for one in found.values()]
            )
        },
    )


def _bounded_claim(
    config: ConcentrationConfig,
    name: str,
    found: Mapping[tuple[str, int], dict[str, Estimate]],
    side: TailSide,
) -> Claim:
    deltas = {place: delta_of(config, one, side) for place, one in found.items()}
    means = {place: float(delta.mean) for place, delta in deltas.items()}
    worst = max(means, key=lambda place: means[place])
    needed = max(float(one[f"epsilon_{side}"].mean) for one in found.values())
    above = side == "above"
    sign = "Z > (1 + ε) EZ" if above else "|Z - EZ| > ε EZ"
    sides = "one-sided" if above else "two-sided"
    source = "definition 1" if above else "with both sides: corrected"
    return judged(
        name=f"Bounded, {sides}: {name}",
        statement=f"‖x‖² is ({config.epsilon:g}, {config.delta:g})-bounded: Pr[{sign}] ≤ δ.",
        source=f"{_SECTION}, {source}",
        found=f"δ at ε = {config.epsilon:g} lies between {min(means.values()):.3f} and "
        f"{with_interval(deltas[worst])} ({worst[0]}, l = {worst[1]}); "
        f"{sum(delta <= config.delta for delta in means.values())} of {len(means)} depths have "
        f"a mean of at most {config.delta:g}, all would at ε = {needed:.3f}. A Gaussian vector "
        f"of that width has δ = {gaussian_delta(config, config.epsilon, side):.3f}.",
        holds=_by_stack(
            {place: between(delta, greatest=config.delta) for place, delta in deltas.items()}
        ),
    )


def gaussian_delta(config: ConcentrationConfig, epsilon: float, side: TailSide) -> float:
    """Returns δ of ‖Y‖², Y ~ N(0, I_d), exactly."""
    lower, upper = corrected.chi_square_tails(width=config.width, epsilon=epsilon)
    return upper if side == "above" else lower + upper


def _gaussian_deltas(config: ConcentrationConfig, side: TailSide) -> Floats:
    """Returns `gaussian_delta` at every ε of the settings."""
    return np.array([gaussian_delta(config, epsilon, side) for epsilon in config.epsilons])


def _by_stack(holds: Mapping[tuple[str, int], Answer]) -> dict[str, Answer]:
    """Returns, of answers by (stack, depth), one entry for the depths of a stack that agree."""
    found: dict[str, Answer] = {}
    for stack in STACKS:
        own = [answer for (name, _), answer in holds.items() if name == stack]
        agree = len(set(own)) == 1
        for depths, answer in by_place(own, "depth").items():
            words = f"in the {stack}" if agree else f"in the {stack} at {depths}"
            found[SettingGroup(words, number_of(depths))] = answer
    return found


def chi_square(config: ConcentrationConfig, gaussian: Mapping[str, Any]) -> Claim:
    """Eq. (66) against the exact tail, and both against samples."""
    claimed = np.array(
        [paper.chi_square_delta(width=config.width, epsilon=epsilon) for epsilon in config.epsilons]
    )
    upper, both = (_gaussian_deltas(config, side) for side in SIDES)
    found, error = np.array(gaussian["above"]), np.array(gaussian["above_error"])
    sampled = answers(found - NORMAL * error, found + NORMAL * error, -math.inf, claimed)
    at = config.epsilons.index(config.epsilon)
    return judged(
        name="χ²: eq. (66)",
        statement="‖Y‖², Y ~ N(0, I_d), is (ε, δ)-bounded with δ = exp(-d ε² / 8).",
        source="Xiong et al. 2020, section 3.3 and appendix G",
        found=f"At d = {config.width}, ε = {config.epsilon:g} it allows δ = {claimed[at]:.3f}; "
        f"exactly it is {upper[at]:.4f}, among {config.vectors:,} vectors {found[at]:.4f} ± "
        f"{error[at]:.4f} (standard error), and both sides together {both[at]:.4f}.",
        holds={"every ε": all_hold([bool((claimed >= upper).all()), *sampled])},
    )


RARE, HUGE = 0.001, 1e6
"""Z is 1, or with this probability a million."""


def lower_tail(config: ConcentrationConfig) -> Claim:
    """Eq. (43) for a Z that meets Definition 1."""
    values, probabilities = [1.0, HUGE], [1 - RARE, RARE]
    mean = 1 - RARE + HUGE * RARE
    one_sided, two_sided = (
        kind.is_bounded(values, probabilities, epsilon=config.epsilon, delta=RARE)
        for kind in (paper, corrected)
    )
    shrunk = sum(p for z, p in zip(values, probabilities, strict=True) if z <= paper.ALPHA_0 * mean)
    sample = torch.rand(100_000, generator=torch.Generator().manual_seed(1)) < RARE
    sampled = float(
        torch.where(sample, HUGE, 1.0).double().le(paper.ALPHA_0 * mean).double().mean()
    )
    limit = paper.shrink_probability(epsilon=config.epsilon)
    return judged(
        name="Lower tail: eq. (43)",
        statement=(
            "An (ε, δ)-bounded Z is at most α₀ EZ with probability at most ε / (1 + ε - α₀) = "
            f"{limit:.3g}."
        ),
        source="Xiong et al. 2020, appendix E, eq. (41) to (44)",
        found="Z = 1, or a million once in a thousand, is "
        f"{'' if one_sided else 'not '}({config.epsilon:g}, {RARE:g})-bounded, and at most EZ "
        f"/ 10 with probability {shrunk:.3f} ({sampled:.4f} of 100,000 samples). Definition 1 "
        "looks upwards only, and Lemma 5 needs a ceiling that is never exceeded; with both "
        f"sides in the definition this Z is {'' if two_sided else 'not '}bounded.",
        holds={"this Z": not (one_sided and shrunk > limit)},
    )


def shrinking(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> Claim:
    """Judges what eq. (44) is used for, on the squared norms themselves."""
    every = [
        one["shrunk"]
        for stacks in found.values()
        for name in QUANTITIES
        for one in _places(stacks, name).values()
    ]
    most = max(float(one.mean) for one in every)
    limit = paper.shrink_probability(epsilon=config.epsilon)
    return judged(
        name="Lower tail: hidden states",
        statement=(
            f"‖x‖² ≥ α₀ E‖x‖², α₀ = {paper.ALPHA_0:g}, with probability at least {1 - limit:.3g}."
        ),
        source="Xiong et al. 2020, eq. (44)",
        found=(
            f"So are {'all' if most == 0 else f'at least {100 * (1 - most):.2f} % of the'} tokens "
            "at any depth. What the step is used for holds here, though it does not follow from "
            "Definition 1."
        ),
        holds={"every depth": all_hold([between(one, greatest=limit) for one in every])},
    )


def theorem_1(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> list[Claim]:
    """The theorem's probability from the δ of what the last norm of the decoder reads; no claim
    where none reads.
    """
    by_title = {named(name).title: one for name, one in lasts(found).items()}
    if not by_title:
        return []
    stated = paper.theorem_1_probability(epsilon=config.epsilon, delta=config.delta)
    texts = []
    for title, one in by_title.items():
        above, both = (float(delta_of(config, one, side).mean) for side in SIDES)
        own = paper.theorem_1_probability(epsilon=config.epsilon, delta=above)
        single, mean = (
            corrected.theorem_1_probability(delta=both, positions=count) for count in (1, 16)
        )
        texts.append(
            f"{title}: δ = {above:.3f} gives {own:.3f}; with both sides, δ = {both:.3f} gives "
            f"{single:.3f} for one position and {mean:.3f} for the mean over 16"
        )
    return [
        judged(
            name="Theorem 1: its probability, by its own formula",
            statement=f"0.99 - δ - ε / (0.9 + ε) is at least {stated:.3f}, its value at "
            f"({config.epsilon:g}, {config.delta:g}).",
            source="Xiong et al. 2020, theorem 1 with section 3.4",
            found=f"From what the decoder's last norm reads. {'. '.join(texts)}.",
            # The formula falls with δ, so it reaches its value where δ is no larger than the
            # reported one.
            holds={title: _within_delta(config, one, "above") for title, one in by_title.items()},
        )
    ]


def lasts(found: Mapping[str, Concentrations]) -> dict[str, dict[str, Estimate]]:
    """Returns what the decoder's last norm reads, by placement, where there is one."""
    return {name: one for name, stacks in found.items() for one in stacks["decoder"]["last"]}
