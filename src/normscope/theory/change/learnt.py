"""The steps of numbers that the formula itself trains: gates, scales of branches and of skips."""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

from ..moments import Use
from ..products import Products
from .rules import STILL, Rule, Step
from .tokens import NONE, Alike, alike, sandwich, trace

MOST_OF_GAUSSIAN = math.sqrt(2 / math.pi)
"""E |z|, what of its sign is a standard normal itself."""


def learnt_steps(rule: Rule, uses: Sequence[Use], gradients: Sequence[Products], width: int, tokens: int) -> list[Step]:
    """How far each product of a value with a trained number moves, at a rate of 1.

    The number of a product a x has the gradient Σ_t ⟨g_t, x_t⟩ over all its uses, or for every feature its own; the
    product moves by x times the number's step. Muon leaves what is no matrix to AdamW.
    """
    squares: dict[Hashable, float] = defaultdict(float)
    for use, g in zip(uses, gradients, strict=True):
        squares[use.number] += trace(alike(g), alike(use.value.products), tokens)
    return [
        _step(rule, use, alike(g), squares[use.number], width, tokens) for use, g in zip(uses, gradients, strict=True)
    ]


def _step(rule: Rule, use: Use, g: Alike, square: float, width: int, tokens: int) -> Step:
    """square: E of the number's squared gradient, over all features where it has one for each."""
    x, whole = alike(use.value.products), use.entries == 1
    if rule == "random":
        return Step(NONE, x)
    if square <= 0:
        return STILL
    if rule == "gradient":
        gram = x.scaled(square if whole else square / width)
        coefficients = x
        if not whole:
            gram = gram.plus(sandwich(x, g, tokens), 2 / width)
    else:
        gram = x
        coefficients = x.scaled(MOST_OF_GAUSSIAN * math.sqrt((1 if whole else width) / square))
    return Step(coefficients, gram.plus(sandwich(coefficients, g.scaled(1 / width), tokens), -1.0))
