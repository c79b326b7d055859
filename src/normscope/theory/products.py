"""Second moments of the tokens of a batch, and the linear maps between them."""

import math
from typing import NamedTuple

make = tuple.__new__
"""make(Products, (one, two, apart)): as the call, without what was a third of the time that predictions take."""


class Products(NamedTuple):
    """Of one token, of two tokens of a sequence, of two of different sequences.

    For values E‖x_i‖² / d and E⟨x_i, x_j⟩ / d; for gradients E‖g_i‖² and E⟨g_i, g_j⟩.
    """

    one: float
    two: float
    apart: float = 0.0

    def scaled(self, factor: float) -> "Products":
        one, two, apart = self
        return make(Products, (one * factor, two * factor, apart * factor))

    def plus(self, other: "Products", factor: float = 1.0) -> "Products":
        """The sum with `factor` times the other."""
        one, two, apart = self
        more, more_two, more_apart = other
        return make(Products, (one + factor * more, two + factor * more_two, apart + factor * more_apart))


NOTHING = Products(0.0, 0.0, 0.0)


class Linear(NamedTuple):
    """What gradients become on their way through a map: `one` is made of the old one and two, `two` too."""

    one_one: float
    one_two: float
    two_one: float
    two_two: float
    apart: float

    def __call__(self, g: Products) -> Products:
        one, two, apart = g
        one_one, one_two, two_one, two_two, apart_apart = self
        return make(Products, (one_one * one + one_two * two, two_one * one + two_two * two, apart_apart * apart))


def outer_norm(g: Products, x: Products, width: int, tokens: int, sequences: int) -> float:
    """‖Σ_i g_i x_iᵀ‖ over all tokens of all sequences, g and x independent of each other and x of that width."""
    per_token = g.one * x.one + (tokens - 1) * g.two * x.two + (sequences - 1) * tokens * g.apart * x.apart
    return math.sqrt(max(0.0, sequences * tokens * width * per_token))
