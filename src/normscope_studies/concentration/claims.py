"""Theorem 1's condition on the squared norms of hidden states, and what follows from it."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch

from normscope.evidence.estimates import part
from normscope.evidence.judging import Answer, all_hold, answers, between, by_place
from normscope.measure import Estimate
from normscope.placement import named

from ..engine.claims import Made, judged
from ..theory import corrected, paper
from .measure import STACKS, ConcentrationConfig, Quantity

Concentrations = dict[str, dict[Quantity, list[dict[str, Estimate]]]]
"""Of one placement: by stack, quantity, depth, and what `summarised` names."""
TailSide = Literal["above", "outside"]
_StackName = Literal["encoder", "decoder"]

QUANTITIES: dict[Quantity, str] = {"state": "hidden state", "read": "what the feed-forward's norm reads"}
PAPER_NAMES = {("post-ln", "read"): "x^{post,5}", ("pre-ln", "read"): "x^{pre,3}", ("pre-ln", "state"): "x^{pre}"}
"""Table 1's names for these."""
_CONSTANT = 1e-3
"""A norm's output: its squared norm spreads by less, as a share of itself."""
_SECTION = "Xiong et al. 2020, section 3.4"


def bounded(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> list[Made]:
    """(ε, δ)-boundedness of each placement's quantities: as Definition 1 has it, and with both sides."""
    made = []
    for placement, stacks in found.items():
        for quantity in QUANTITIES:
            if not stacks["encoder"][quantity]:
                continue
            if constant(stacks, quantity):
                made.append(_constant_claim(config, placement, stacks, quantity))
            else:
                made += [_bounded_claim(config, placement, stacks, quantity, side) for side in ("above", "outside")]
    return made


def constant(stacks: Concentrations, quantity: Quantity) -> bool:
    """Whether it is the same for all tokens behind the embedding, as a norm's output is."""
    return all(float(one["deviation"].mean) < _CONSTANT for s in STACKS for _, one in depths(stacks[s], quantity))


def delta_of(config: ConcentrationConfig, one: Mapping[str, Estimate], side: TailSide) -> tuple[float, float]:
    """δ at the claimed ε, mean over models, and its half width."""
    at = config.epsilons.index(config.epsilon)
    return float(one[side].mean[at]), float(one[side].half_width[at])


def within_delta(config: ConcentrationConfig, one: Mapping[str, Estimate], side: TailSide) -> Answer:
    """Whether δ at the claimed ε is at most the claimed one."""
    return between(part(one[side], [config.epsilons.index(config.epsilon)]), greatest=config.delta)


def name_of(placement: str, quantity: Quantity) -> str:
    """Such as "Post-LN, what the feed-forward's norm reads (x^{post,5})"."""
    short = PAPER_NAMES.get((placement, quantity))
    return f"{named(placement).title}, {QUANTITIES[quantity]}{f' ({short})' if short else ''}"


def depths(
    of: Mapping[Quantity, list[dict[str, Estimate]]], quantity: Quantity
) -> list[tuple[int, dict[str, Estimate]]]:
    """By completed blocks, or block: without the embedding, which is no hidden state of a layer."""
    return [(depth, one) for depth, one in enumerate(of[quantity], 0 if quantity == "state" else 1) if depth]


def _constant_claim(config: ConcentrationConfig, placement: str, stacks: Concentrations, quantity: Quantity) -> Made:
    every = [one for stack in STACKS for _, one in depths(stacks[stack], quantity)]
    numbers = {
        "largest_deviation": max(float(one["deviation"].mean) for one in every),
        "delta": max(delta_of(config, one, "outside")[0] for one in every),
    }
    claim = judged(
        name=f"Bounded: {name_of(placement, quantity)}",
        statement=f"‖x‖² is ({config.epsilon:g}, {config.delta:g})-bounded.",
        source=_SECTION,
        found=f"Trivially: a norm's output has the same squared norm in every token, up to a standard deviation of "
        f"{numbers['largest_deviation']:.1e} of it. What Theorem 1 needs is asked of what norms read.",
        holds={"every depth": all_hold([within_delta(config, one, "outside") for one in every])},
    )
    return claim, numbers


def _bounded_claim(
    config: ConcentrationConfig, placement: str, stacks: Concentrations, quantity: Quantity, side: TailSide
) -> Made:
    deltas = {
        (stack, depth): delta_of(config, one, side)
        for stack in STACKS
        for depth, one in depths(stacks[stack], quantity)
    }
    holds = {
        (stack, depth): within_delta(config, one, side)
        for stack in STACKS
        for depth, one in depths(stacks[stack], quantity)
    }
    worst = max(deltas, key=lambda place: deltas[place][0])
    epsilon = max(float(one[f"epsilon_{side}"].mean) for stack in STACKS for _, one in depths(stacks[stack], quantity))
    lower, upper = corrected.chi_square_tails(width=config.width, epsilon=config.epsilon)
    expected = upper if side == "above" else lower + upper
    numbers = {
        "largest_delta": deltas[worst][0],
        "half_width": deltas[worst][1],
        "least_delta": min(delta for delta, _ in deltas.values()),
        "epsilon_needed": epsilon,
        "chi_square_delta": expected,
        "depths": len(deltas),
        "within": sum(delta <= config.delta for delta, _ in deltas.values()),
    }
    sign, sides = ("Z > (1 + ε) EZ", "one-sided") if side == "above" else ("|Z - EZ| > ε EZ", "two-sided")
    claim = judged(
        name=f"Bounded, {sides}: {name_of(placement, quantity)}",
        statement=f"‖x‖² is ({config.epsilon:g}, {config.delta:g})-bounded: Pr[{sign}] ≤ δ.",
        source=f"{_SECTION}, definition 1" if side == "above" else f"{_SECTION}, with both sides: corrected",
        found=f"δ at ε = {config.epsilon:g} lies between {numbers['least_delta']:.3f} and "
        f"{numbers['largest_delta']:.3f} ± {numbers['half_width']:.3f} ({worst[0]}, l = {worst[1]}); "
        f"{numbers['within']} of {len(deltas)} depths have a mean of at most {config.delta:g}, all would at "
        f"ε = {epsilon:.3f}. "
        f"A Gaussian vector of that width has δ = {expected:.3f}.",
        holds=_by_stack(holds),
    )
    return claim, numbers


def _by_stack(holds: Mapping[tuple[_StackName, int], Answer]) -> dict[str, Answer]:
    """By (stack, depth): one entry for the depths of a stack that agree."""
    found: dict[str, Answer] = {}
    for stack in STACKS:
        own = [answer for (name, _), answer in holds.items() if name == stack]
        agree = len(set(own)) == 1
        for places, answer in by_place(own, "depth").items():
            found[f"in the {stack}" if agree else f"in the {stack} at {places}"] = answer
    return found


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


def shrinking(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> Made:
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


def theorem_1(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> list[Made]:
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
