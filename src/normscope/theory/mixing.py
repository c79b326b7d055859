"""Second moments of the tokens of a batch, and the linear maps by which attention mixes them before
training.

Where all places of a sequence are alike, moments are numbers. In a causal stack each place has
moments of its own (`places.py`): then they are arrays, and what stands here of numbers holds of
them too.

The equations are T7 to T9 of docs/theory.md.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Entry = Any
"""A number; by place (K,) of single tokens and (K, K) of two."""

make = tuple.__new__
"""make(Products, (one, two, apart)): as the call, without what was a third of the time that
predictions take.
"""


class Products(NamedTuple):
    """Of one token, of two tokens of a sequence, of two of different sequences.

    For values E‖x_i‖² / d and E⟨x_i, x_j⟩ / d; for gradients E‖g_i‖² and E⟨g_i, g_j⟩.
    """

    one: Entry
    two: Entry
    apart: Entry = 0.0

    def scaled(self, factor: float) -> "Products":
        one, two, apart = self
        return make(Products, (one * factor, two * factor, apart * factor))

    def plus(self, other: "Products", factor: float = 1.0) -> "Products":
        """The sum with `factor` times the other."""
        one, two, apart = self
        more, more_two, more_apart = other
        return make(
            Products, (one + factor * more, two + factor * more_two, apart + factor * more_apart)
        )


NOTHING = Products(0.0, 0.0, 0.0)


def squared(factor: Entry) -> tuple[Entry, Entry]:
    """Returns what a value's factor does to the square of one token, and to a product of two."""
    if isinstance(factor, np.ndarray):
        return factor * factor, np.outer(factor, factor)
    square = factor * factor
    return square, square


def vanishes(number: Entry) -> bool:
    """Tells whether it is 0 at every place."""
    return not (number.any() if isinstance(number, np.ndarray) else number)


def root(number: Entry) -> Entry:
    return np.sqrt(number) if isinstance(number, np.ndarray) else math.sqrt(number)


def mean_of(number: Entry) -> float:
    """Over all places."""
    return float(number.mean()) if isinstance(number, np.ndarray) else number


def between(least: float, number: Entry, most: float) -> Entry:
    return (
        np.clip(number, least, most)
        if isinstance(number, np.ndarray)
        else min(most, max(least, number))
    )


class LinearMap(NamedTuple):
    """Says what gradients become on their way through a map: `one` is made of the old one and two,
    `two` too.
    """

    one_one: float
    one_two: float
    two_one: float
    two_two: float
    apart: float

    def __call__(self, g: Products) -> Products:
        one, two, apart = g
        one_one, one_two, two_one, two_two, apart_apart = self
        return make(
            Products,
            (one_one * one + one_two * two, two_one * one + two_two * two, apart_apart * apart),
        )


def outer_square(g: Products, x: Products, width: int, tokens: int, sequences: int) -> float:
    """‖Σ_i g_i x_iᵀ‖² over all tokens of all sequences, g and x independent of each other and x of
    that width.

    Equation T11.
    """
    per_token = (
        g.one * x.one + (tokens - 1) * g.two * x.two + (sequences - 1) * tokens * g.apart * x.apart
    )
    return float(sequences * tokens * width * per_token)


SOFTMAX_STEPS = 12
"""Standard deviations of logits for which the integral is solved, in each unit."""
SOFTMAX_WIDEST = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """What attention's weights w_ij are on average; the products of mixed values are linear in
    those of the values.

    `self_one` and `self_two` are the shares of q in the new q and in the new p; p has the rest.
    """

    self_one: float
    """E Σ_j w_ij²."""
    self_two: float
    """E Σ_j w_ij w_i'j, of two queries."""
    apart_one: float
    """E Σ_j w_ij² u_ij², u_ij the distance of value j from what its query mixes, per distance of
    two values: 2u².
    """
    apart_two: float
    """E Σ_j w_ij w_i'j u_ij u_i'j, of two queries."""

    def forward(self, value: Products) -> Products:
        """Values of other sequences are mixed by other weights, which leaves their mean product as
        it is.

        Equation T7.
        """
        one, two, apart = value
        gap = one - two
        return make(Products, (two + self.self_one * gap, two + self.self_two * gap, apart))


@lru_cache(maxsize=64)
def uniform(keys: int) -> Mixing:
    """Every query sees all keys with the same weight: W_Q = W_K = 0."""
    apart = (1 - 1 / keys) / keys
    return Mixing(self_one=1 / keys, self_two=1 / keys, apart_one=apart, apart_two=apart)


def sharpened(keys: int, variance: float, covariance: float = 0.0, common: float = 0.0) -> Mixing:
    """With random queries and keys: logits of that variance over the keys, and covariance for two
    queries.

    The shares grow as those of softmax over independent Gaussian logits do; for two queries that is
    exact where their logits are the same, and of `self_two` where they are independent. Of two keys
    they vary together as much as values that are made of the same tokens do, whose products have
    the mean square `common`.

    Equations T8 and T10.
    """
    plain = uniform(keys)
    if variance <= 0.0:
        return plain
    together = max(0.0, min(covariance, variance))
    self_one, self_two = softmax_square(keys, variance), softmax_square(keys, together)
    more = common * (1 - 1 / keys) * variance * (1 - self_one) ** 4
    return Mixing(
        self_one=self_one + more,
        self_two=self_two + more * covariance / variance,
        apart_one=softmax_apart(keys, variance),
        apart_two=softmax_apart(keys, together),
    )


def softmax_square(keys: Entry, variance: Entry) -> Entry:
    """E Σ_j w_j² for w = softmax(z), z of `keys` independent Gaussians: 1/keys without variance, 1
    at its other end.

    Interpolated between variances for which the integral is solved, up to 64; the error is below a
    hundredth.

    Equation T8.
    """
    return _softmax(0, keys, variance)


def softmax_apart(keys: Entry, variance: Entry) -> Entry:
    """E Σ_j w_j² (1 - 2 w_j + Σ_k w_k²) of the same: how far values that have nothing in common lie
    from their mean.

    Equation T9.
    """
    return _softmax(1, keys, variance)


def _softmax(which: int, keys: Entry, variance: Entry) -> Entry:
    if isinstance(variance, np.ndarray):
        return _softmax_at(which, keys, variance)
    place = min(math.sqrt(variance), SOFTMAX_WIDEST) * SOFTMAX_STEPS
    low = min(int(place), int(SOFTMAX_WIDEST * SOFTMAX_STEPS) - 1)
    below, above = (_softmax_of(keys, step)[which] for step in (low, low + 1))
    # Linear in the variance, as it is at 0.
    return below + (above - below) * (place**2 - low**2) / (2 * low + 1)


def _softmax_at(which: int, keys: Array, variance: Array) -> Array:
    place = np.minimum(np.sqrt(variance), SOFTMAX_WIDEST) * SOFTMAX_STEPS
    steps = np.minimum(place.astype(int), int(SOFTMAX_WIDEST * SOFTMAX_STEPS) - 1)
    found = np.empty(place.shape)
    for step in np.unique(steps):
        here = steps == step
        below, above = (
            _softmax_up_to(int(keys.max()), int(one))[which][keys[here] - 1]
            for one in (step, step + 1)
        )
        found[here] = below + (above - below) * (place[here] ** 2 - step**2) / (2 * step + 1)
    return found


@lru_cache(maxsize=1024)
def _softmax_of(keys: int, step: int) -> tuple[float, float]:
    square, apart = _solved(step, (keys,))
    return float(square[0]), float(apart[0])


@lru_cache(maxsize=128)
def _softmax_up_to(most: int, step: int) -> tuple[Array, Array]:
    """Of 1, 2, … `most` keys."""
    return _solved(step, tuple(range(1, most + 1)))


def softmax_squares(step: int, counts: tuple[int, ...]) -> Array:
    """E Σ w² of so many keys each, at that step of the standard deviation."""
    return _solved(step, counts)[0] if step else 1 / np.array(counts)


def _solved(step: int, counts: tuple[int, ...]) -> tuple[Array, Array]:
    """Solves by 1/S^k = ∫ t^(k-1) e^(-tS) dt / (k-1)!, S = Σ e^z, of which the keys are factors.

    E Σ w² is n ∫ t E[e^(2z - t e^z)] E[e^(-t e^z)]^(n-1) dt; Σ w³ is made of the third power, and
    (Σ w²)² of n fourth powers and n (n-1) products of two second ones.

    Equation T8.
    """
    z = np.linspace(-9, 9, 181)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    log_t = np.linspace(-60, 40, 801)
    exponential = np.exp(step / SOFTMAX_STEPS * z)
    scaled = np.exp(log_t)[:, None] * exponential
    damped = np.exp(-scaled) * density
    others = damped.sum(1)
    second, third, fourth = ((damped * scaled**power).sum(1) for power in (2, 3, 4))
    width = log_t[1] - log_t[0]
    square, apart = np.ones(len(counts)), np.zeros(len(counts))
    for place, n in enumerate(counts):
        if n == 1:
            continue
        rest = others ** (n - 2)
        squares, cubes = (n * float(part @ (rest * others)) * width for part in (second, third / 2))
        both = n * float((fourth * others + (n - 1) * second**2) @ rest) * width / 6
        square[place], apart[place] = min(1.0, squares), max(0.0, squares - 2 * cubes + both)
    return square, apart
