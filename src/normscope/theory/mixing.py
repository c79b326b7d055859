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
    """Holds E of a product of one token with itself (`one`), of two tokens of a sequence (`two`),
    and of two tokens of different sequences (`apart`).

    Of values these are q, p and their like: E‖x_s‖² / d and E⟨x_s, x_t⟩ / d. Of gradients they are
    E‖g_s‖² and E⟨g_s, g_t⟩, not divided by the width.
    """

    one: Entry
    two: Entry
    apart: Entry = 0.0

    def scaled(self, factor: float) -> "Products":
        """Returns the moments of √factor times the value. Equation T1."""
        one, two, apart = self
        return make(Products, (one * factor, two * factor, apart * factor))

    def plus(self, other: "Products", factor: float = 1.0) -> "Products":
        """Returns the moments of a sum of two independent values, the second times √factor.
        Equation T1.
        """
        one, two, apart = self
        more, more_two, more_apart = other
        return make(
            Products, (one + factor * more, two + factor * more_two, apart + factor * more_apart)
        )


NOTHING = Products(0.0, 0.0, 0.0)


def squared(factor: Entry) -> tuple[Entry, Entry]:
    """Returns the factors of E⟨x_s, x_s⟩ and of E⟨x_s, x_t⟩, where x is multiplied by a factor c:
    c² and c_s c_t. Equation T1.
    """
    if isinstance(factor, np.ndarray):
        return factor * factor, np.outer(factor, factor)
    square = factor * factor
    return square, square


def vanishes(number: Entry) -> bool:
    """Tells whether a number is 0 at every place."""
    return not (number.any() if isinstance(number, np.ndarray) else number)


def root(number: Entry) -> Entry:
    """Returns the square root of a number, or of one at each place."""
    return np.sqrt(number) if isinstance(number, np.ndarray) else math.sqrt(number)


def mean_of(number: Entry) -> float:
    """Returns the mean over all places. Equation T17."""
    return float(number.mean()) if isinstance(number, np.ndarray) else number


def between(least: float, number: Entry, most: float) -> Entry:
    """Returns the number that is nearest between two bounds."""
    return (
        np.clip(number, least, most)
        if isinstance(number, np.ndarray)
        else min(most, max(least, number))
    )


class LinearMap(NamedTuple):
    """Maps the products of gradients on their way back: `one` is made of the old one and two, and
    so is `two`.
    """

    one_one: float
    one_two: float
    two_one: float
    two_two: float
    apart: float

    def __call__(self, g: Products) -> Products:
        """Returns the gradients behind the map. Equation T9."""
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
"""The largest of them: beyond it one key has nearly all of the weight."""
_LAST_STEP = int(SOFTMAX_WIDEST * SOFTMAX_STEPS)
_Z_REACH, _Z_POINTS = 9, 181
"""Standard deviations to either side over which a logit is integrated, and the points for it."""
_LOG_T = (-60, 40, 801)
"""From where to where log t goes in the integral over t, and the points for it: t e^z runs from
nothing to where e^(−t e^z) is nothing, for every z of every variance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """Holds the products of attention's weights w_ij over draws, in which products of mixed values
    are linear.

    A₁ (`self_one`) and A₂ (`self_two`) are the shares of q in the new q and in the new p; p has the
    rest.
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
        """Returns the products of what is mixed: p + A (q − p). Sequences are mixed by weights of
        their own, which leaves the products between them as they are. Equation T7.
        """
        one, two, apart = value
        gap = one - two
        return make(Products, (two + self.self_one * gap, two + self.self_two * gap, apart))


@lru_cache(maxsize=64)
def uniform(keys: int) -> Mixing:
    """Returns the mixing of queries that see all keys with the same weight, as with W_Q = W_K = 0:
    A₁ = A₂ = 1/n and U₁ = U₂ = (1 − 1/n) / n. Equations T7 and T9.
    """
    apart = (1 - 1 / keys) / keys
    return Mixing(self_one=1 / keys, self_two=1 / keys, apart_one=apart, apart_two=apart)


def sharpened(keys: int, variance: float, covariance: float = 0.0, common: float = 0.0) -> Mixing:
    """Returns the mixing by a softmax over random queries and keys.

    The shares grow as those of a softmax over independent Gaussian logits do. Of two queries that
    is exact where their logits are the same, and A₂ also where they are independent. Logits of two
    keys vary together as much as values that are made of the same tokens do, whose products have
    the mean square `common`.

    variance: s² of a query's logits over the keys. covariance: that of two queries' logits. common:
    narrow / d of T10.

    Equations T8 and T10.
    """
    if variance <= 0.0:
        return uniform(keys)
    # What two queries' logits have in common sharpens both alike.
    together = max(0.0, min(covariance, variance))
    self_one = softmax_square(keys, variance)
    self_two = softmax_square(keys, together)
    # Keys that a query meets are the values that it mixes: `common` of (Σ_j w_j (1 − w_j))², times
    # what the softmax has left to move.
    more = common * (1 - 1 / keys) * variance * (1 - self_one) ** 4
    return Mixing(
        self_one=self_one + more,
        self_two=self_two + more * covariance / variance,
        apart_one=softmax_apart(keys, variance),
        apart_two=softmax_apart(keys, together),
    )


def softmax_square(keys: Entry, variance: Entry) -> Entry:
    """Returns A₁ = E Σ_j w_j² for w = softmax(z), z of n = `keys` independent Gaussians: 1/n
    without variance, and 1 as the variance grows without end.

    Interpolated between standard deviations for which the integral is solved, up to 8; the error is
    below a hundredth.

    Equation T8.
    """
    return _softmax(0, keys, variance)


def softmax_apart(keys: Entry, variance: Entry) -> Entry:
    """Returns U₁ = E Σ_j w_j² (1 − 2 w_j + Σ_k w_k²) of the same softmax: how far values that have
    nothing in common lie from their mean. Equation T9.
    """
    return _softmax(1, keys, variance)


def _softmax(which: int, keys: Entry, variance: Entry) -> Entry:
    """Returns A₁ (0) or U₁ (1) of a variance, linear between the tabled ones. Equations T8 and
    T9.
    """
    if isinstance(variance, np.ndarray):
        return _softmax_at(which, keys, variance)
    step = min(math.sqrt(variance), SOFTMAX_WIDEST) * SOFTMAX_STEPS
    low = min(int(step), _LAST_STEP - 1)
    below = _softmax_of(keys, low)[which]
    above = _softmax_of(keys, low + 1)[which]
    # Linear in the variance, as it is at 0: (low + 1)² − low² is 2 low + 1.
    return below + (above - below) * (step**2 - low**2) / (2 * low + 1)


def _softmax_at(which: int, keys: Array, variance: Array) -> Array:
    """Returns the same for arrays of key counts and variances. Equations T8, T9 and T17."""
    step = np.minimum(np.sqrt(variance), SOFTMAX_WIDEST) * SOFTMAX_STEPS
    lows = np.minimum(step.astype(int), _LAST_STEP - 1)
    most = int(keys.max())
    found = np.empty(step.shape)
    for low in np.unique(lows):
        here = lows == low
        counts = keys[here] - 1
        below = _softmax_up_to(most, int(low))[which][counts]
        above = _softmax_up_to(most, int(low + 1))[which][counts]
        found[here] = below + (above - below) * (step[here] ** 2 - low**2) / (2 * low + 1)
    return found


@lru_cache(maxsize=1024)
def _softmax_of(keys: int, step: int) -> tuple[float, float]:
    """Returns A₁ and U₁ at one tabled standard deviation. Equations T8 and T9."""
    square, apart = _solved(step, (keys,))
    return float(square[0]), float(apart[0])


@lru_cache(maxsize=128)
def _softmax_up_to(most: int, step: int) -> tuple[Array, Array]:
    """Returns A₁ and U₁, (most,) each, of 1, 2, … `most` keys. Equations T8, T9 and T17."""
    return _solved(step, tuple(range(1, most + 1)))


def softmax_squares(step: int, counts: tuple[int, ...]) -> Array:
    """Returns A₁ for each of these counts of keys, at that step of the standard deviation. Equation
    T8.
    """
    return _solved(step, counts)[0] if step else 1 / np.array(counts)


def _solved(step: int, counts: tuple[int, ...]) -> tuple[Array, Array]:
    """Solves by 1/S^k = ∫ t^(k-1) e^(-tS) dt / (k-1)!, S = Σ e^z, of which the keys are factors.

    E Σ w² is n ∫ t E[e^(2z - t e^z)] E[e^(-t e^z)]^(n-1) dt; Σ w³ is made of the third power, and
    (Σ w²)² of n fourth powers and n (n-1) products of two second ones.

    Equation T8.
    """
    z = np.linspace(-_Z_REACH, _Z_REACH, _Z_POINTS)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    log_t = np.linspace(*_LOG_T)
    # dt is t d(log t), which takes one of the powers of t.
    d_log_t = log_t[1] - log_t[0]
    exponential = np.exp(step / SOFTMAX_STEPS * z)
    t_e_z = np.exp(log_t)[:, None] * exponential
    damped = np.exp(-t_e_z) * density
    # E[(t e^z)^k e^(−t e^z)] by t: of a key that is not asked for k is 0.
    zeroth = damped.sum(1)
    second, third, fourth = ((damped * t_e_z**power).sum(1) for power in (2, 3, 4))
    square = np.ones(len(counts))
    apart = np.zeros(len(counts))
    for place, n in enumerate(counts):
        if n == 1:
            # All of the weight, whatever the logit.
            continue
        rest = zeroth ** (n - 2)
        sum_of_squares = n * float(second @ (rest * zeroth)) * d_log_t
        sum_of_cubes = n * float((third / 2) @ (rest * zeroth)) * d_log_t
        square_of_sum = n * float((fourth * zeroth + (n - 1) * second**2) @ rest) * d_log_t / 6
        square[place] = min(1.0, sum_of_squares)
        # E Σ w² − 2 Σ w³ + (Σ w²)², which is U₁.
        apart[place] = max(0.0, sum_of_squares - 2 * sum_of_cubes + square_of_sum)
    return square, apart
