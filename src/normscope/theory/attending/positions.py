"""Rotary positions on moments: queries and keys are turned by where they stand.

The equation is T21 of docs/theory.md.
"""

from functools import lru_cache

import numpy as np

from ..mixing import Array, Entry, LinearMap, Products
from ..places import ByPlace, GradientMap, Places, whole_of

BASE = 10_000.0
"""The base of the angles, as in Su et al. 2021, section 3.2.2."""


@lru_cache(maxsize=32)
def angles_of(width_of_head: int) -> tuple[float, ...]:
    """Returns the angle by which each pair of a head's features is turned from one token to the
    next, θ_c = 10000^(−2c / head): of a head of 4 features 1 and 0.01. Equation T21.
    """
    pairs = np.arange(0, width_of_head, 2) / width_of_head
    return tuple((BASE**-pairs).tolist())


@lru_cache(maxsize=32)
def turning(angles: tuple[float, ...], tokens: int | Places) -> Entry:
    """Returns what the product of two random vectors of a head is on average, turned by where two
    tokens stand, over what it was: the mean of cos(θ_c (i − j)) over these angles.

    A number where places are alike, the mean over all pairs of tokens; else (K, K), 1 of a place
    with itself where it is one token.

    Equation T21.
    """
    count = tokens.total if isinstance(tokens, Places) else tokens
    # c(i − j) of every two places of a sequence.
    steps = np.subtract.outer(np.arange(count), np.arange(count))
    kept: Array = np.cos(steps[..., None] * np.array(angles)).mean(-1)
    if isinstance(tokens, Places):
        found: Array = tokens.gathered(kept).two
        return found
    # Its mean over pairs, without the 1 of a token with itself.
    pairs = count * (count - 1)
    return float(kept.sum() - count) / pairs if pairs else 1.0


def rotated(products: Products, turned: Entry) -> Products:
    """Returns moments of queries, or of keys, that are turned by where they stand.

    Equation T21.
    """
    return products._replace(two=products.two * turned)


def rotated_back(back: GradientMap, turned: Entry | None) -> GradientMap:
    """Returns the map to gradients of what was turned, which are turned back; None where nothing
    was.

    Equation T21.
    """
    if turned is None:
        return back
    if isinstance(back, LinearMap):
        return back._replace(two_one=back.two_one * turned, two_two=back.two_two * turned)
    # A token's own square is not turned.
    ones = np.ones(len(turned))
    return ByPlace(
        lambda g: rotated(back(g), turned),
        lambda changed: back.forward(changed) * whole_of(Products(ones, turned)),
    )
