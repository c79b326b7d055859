"""(ε, δ)-boundedness of each placement's squared norms: a claim each, with a verdict computed from them."""

from collections.abc import Mapping
from typing import Literal

from normscope.evidence.estimates import part
from normscope.evidence.judging import Answer, all_hold, between, by_place
from normscope.measure import Estimate
from normscope.placement import named

from ..engine.claims import Made, judged
from ..theory import corrected
from .measure import STACKS, ConcentrationConfig, Quantity

Found = dict[str, dict[Quantity, list[dict[str, Estimate]]]]
"""Of one placement: by stack, quantity, depth, and what `summarised` names."""
Sides = Literal["above", "outside"]
Stack = Literal["encoder", "decoder"]

QUANTITIES: dict[Quantity, str] = {"state": "hidden state", "read": "what the feed-forward's norm reads"}
PAPER_NAMES = {("post-ln", "read"): "x^{post,5}", ("pre-ln", "read"): "x^{pre,3}", ("pre-ln", "state"): "x^{pre}"}
"""Table 1's names for these."""
_CONSTANT = 1e-3
"""A norm's output: its squared norm spreads by less, as a share of itself."""
_SECTION = "Xiong et al. 2020, section 3.4"


def bounded(config: ConcentrationConfig, found: Mapping[str, Found]) -> list[Made]:
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


def constant(stacks: Found, quantity: Quantity) -> bool:
    """Whether it is the same for all tokens behind the embedding, as a norm's output is."""
    return all(float(one["deviation"].mean) < _CONSTANT for s in STACKS for _, one in depths(stacks[s], quantity))


def delta_of(config: ConcentrationConfig, one: Mapping[str, Estimate], side: Sides) -> tuple[float, float]:
    """δ at the claimed ε, mean over models, and its half width."""
    at = config.epsilons.index(config.epsilon)
    return float(one[side].mean[at]), float(one[side].half_width[at])


def within_delta(config: ConcentrationConfig, one: Mapping[str, Estimate], side: Sides) -> Answer:
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


def _constant_claim(config: ConcentrationConfig, placement: str, stacks: Found, quantity: Quantity) -> Made:
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


def _bounded_claim(config: ConcentrationConfig, placement: str, stacks: Found, quantity: Quantity, side: Sides) -> Made:
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


def _by_stack(holds: Mapping[tuple[Stack, int], Answer]) -> dict[str, Answer]:
    """By (stack, depth): one entry for the depths of a stack that agree."""
    found: dict[str, Answer] = {}
    for stack in STACKS:
        own = [answer for (name, _), answer in holds.items() if name == stack]
        agree = len(set(own)) == 1
        for places, answer in by_place(own, "depth").items():
            found[f"in the {stack}" if agree else f"in the {stack} at {places}"] = answer
    return found
