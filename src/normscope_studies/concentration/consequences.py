"""What the paper builds on boundedness: the chi-square's tail, the lower tail, and the theorem's probability."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from normscope.evidence.judging import Answer, all_hold, answers, between
from normscope.placement import named

from ..engine.claims import Made, judged
from ..theory import corrected, paper
from .claims import QUANTITIES, Found, delta_of, depths, within_delta
from .measure import STACKS, ConcentrationConfig

TWO_SIDED = 1.959964
"""Standard errors of a 95 % interval, of counts this large."""


def chi_square(config: ConcentrationConfig, gaussian: Mapping[str, Any]) -> Made:
    """Eq. (66) against the exact tail, and both against samples."""
    rows = []
    for i, epsilon in enumerate(config.epsilons):
        claimed = paper.chi_square_delta(width=config.width, epsilon=epsilon)
        lower, upper = corrected.chi_square_tails(width=config.width, epsilon=epsilon)
        rows.append((claimed, upper, lower + upper, gaussian["above"][i], gaussian["above_error"][i]))
    exactly = all(claimed >= exact for claimed, exact, *_ in rows)
    sampled = all_hold(
        [
            answer
            for claimed, *_, found, error in rows
            for answer in answers(found - TWO_SIDED * error, found + TWO_SIDED * error, -math.inf, claimed)
        ]
    )
    claimed, upper, both, found, error = rows[config.epsilons.index(config.epsilon)]
    numbers = {"claimed": claimed, "exact": upper, "exact_both": both, "sampled": found, "standard_error": error}
    claim = judged(
        name="χ²: eq. (66)",
        statement="‖Y‖², Y ~ N(0, I_d), is (ε, δ)-bounded with δ = exp(-d ε² / 8).",
        source="Xiong et al. 2020, section 3.3 and appendix G",
        found=f"At d = {config.width}, ε = {config.epsilon:g} it allows δ = {claimed:.3f}; exactly it is {upper:.4f}, "
        f"among {config.vectors:,} vectors {found:.4f} ± {error:.4f} (standard error), and both sides together "
        f"{both:.4f}.",
        holds={"every ε": all_hold([exactly, sampled])},
    )
    return claim, numbers


RARE, HUGE = 0.001, 1e6
"""Z is 1, or with this probability a million."""


def lower_tail(config: ConcentrationConfig) -> Made:
    """Eq. (43) for a Z that meets Definition 1."""
    values, probabilities = [1.0, HUGE], [1 - RARE, RARE]
    mean = values[0] * probabilities[0] + values[1] * probabilities[1]
    premise = paper.is_bounded(values, probabilities, epsilon=config.epsilon, delta=RARE)
    shrunk = sum(p for z, p in zip(values, probabilities, strict=True) if z <= paper.ALPHA_0 * mean)
    sample = torch.rand(100_000, generator=torch.Generator().manual_seed(1)) < RARE
    sampled = float(torch.where(sample, HUGE, 1.0).double().le(paper.ALPHA_0 * mean).double().mean())
    limit = paper.shrink_probability(epsilon=config.epsilon)
    two_sided = corrected.is_bounded(values, probabilities, epsilon=config.epsilon, delta=RARE)
    numbers = {
        "definition_1": premise,
        "two_sided": two_sided,
        "probability": shrunk,
        "sampled": sampled,
        "claimed_at_most": limit,
        "mean": mean,
    }
    claim = judged(
        name="Lower tail: eq. (43)",
        statement=f"An (ε, δ)-bounded Z is at most α₀ EZ with probability at most ε / (1 + ε - α₀) = {limit:.3g}.",
        source="Xiong et al. 2020, appendix E, eq. (41) to (44)",
        found=f"Z = 1, or a million once in a thousand, is {'' if premise else 'not '}({config.epsilon:g}, {RARE:g})-"
        f"bounded, and at most EZ / 10 with probability {shrunk:.3f} ({sampled:.4f} of 100,000 samples). Definition 1 "
        "looks upwards only, and Lemma 5 needs a ceiling that is never exceeded; with both sides in the definition "
        f"this Z is {'' if two_sided else 'not '}bounded.",
        holds={"this Z": not (premise and shrunk > limit)},
    )
    return claim, numbers


def shrinking(config: ConcentrationConfig, found: Mapping[str, Found]) -> Made:
    """What eq. (44) is used for, on the squared norms themselves."""
    every = [
        one["shrunk"]
        for stacks in found.values()
        for stack in STACKS
        for quantity in QUANTITIES
        for _, one in depths(stacks[stack], quantity)
    ]
    most = max(float(one.mean) for one in every)
    limit = paper.shrink_probability(epsilon=config.epsilon)
    claim = judged(
        name="Lower tail: hidden states",
        statement=f"‖x‖² ≥ α₀ E‖x‖², α₀ = {paper.ALPHA_0:g}, with probability at least {1 - limit:.3g}.",
        source="Xiong et al. 2020, eq. (44)",
        found=f"So are {'all' if most == 0 else f'at least {100 * (1 - most):.2f} % of the'} tokens at any depth. What "
        "the step is used for holds here, though it does not follow from Definition 1.",
        holds={"every depth": all_hold([between(one, greatest=limit) for one in every])},
    )
    return claim, {"at_least_percent": 100 * (1 - most)}


def theorem_1(config: ConcentrationConfig, found: Mapping[str, Found]) -> list[Made]:
    """The theorem's probability from the δ of what the last norm of the decoder reads; no claim where none reads."""
    if not any(stacks["decoder"]["last"] for stacks in found.values()):
        return []
    stated = paper.theorem_1_probability(epsilon=config.epsilon, delta=config.delta)
    numbers: dict[str, Any] = {"stated": stated}
    texts: list[str] = []
    holds: dict[str, Answer] = {}
    for placement, stacks in found.items():
        if not stacks["decoder"]["last"]:
            continue
        one = stacks["decoder"]["last"][0]
        above, both = delta_of(config, one, "above")[0], delta_of(config, one, "outside")[0]
        of = {
            "delta_above": above,
            "delta_outside": both,
            "papers_formula": paper.theorem_1_probability(epsilon=config.epsilon, delta=above),
            "corrected_one_position": corrected.theorem_1_probability(delta=both),
            "corrected_16_positions": corrected.theorem_1_probability(delta=both, positions=16),
        }
        numbers[placement] = of
        # The formula falls with δ, so it reaches its value where δ is no larger than the reported one.
        holds[named(placement).title] = within_delta(config, one, "above")
        texts.append(
            f"{named(placement).title}: δ = {above:.3f} gives {of['papers_formula']:.3f}; with both sides, "
            f"δ = {both:.3f} gives {of['corrected_one_position']:.3f} for one position and "
            f"{of['corrected_16_positions']:.3f} for the mean over 16"
        )
    claim = judged(
        name="Theorem 1: its probability, by its own formula",
        statement=f"0.99 - δ - ε / (0.9 + ε) is at least {stated:.3f}, its value at ({config.epsilon:g}, "
        f"{config.delta:g}).",
        source="Xiong et al. 2020, theorem 1 with section 3.4",
        found=f"From what the decoder's last norm reads. {'. '.join(texts)}.",
        holds=holds,
    )
    return [(claim, numbers)]
