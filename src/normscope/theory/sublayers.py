"""Attention and feed-forward on moments: second moments forward, gradients backward, gradients of every matrix.

Gradients have two numbers as values have: G = E‖∂L/∂x_i‖² and H = E⟨∂L/∂x_i, ∂L/∂x_j⟩, i ≠ j, over the tokens of one
sequence, for the mean loss of its n tokens. A matrix whose inputs are x_i and whose outputs have the gradients g_i
has the gradient Σ_i g_i x_iᵀ, of squared norm n (G q_x + (n - 1) H p_x) where g and x are independent.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .kernels import Activation, Kernel, kernel
from .moments import Atoms, Moments

Inside = Mapping[str, Callable[[Moments], Moments]]


class Pair(NamedTuple):
    """A quantity of one token and of two: of values (q, p) divided by their width, of gradients not."""

    one: float
    two: float

    def scaled(self, factor: float) -> "Pair":
        return Pair(self.one * factor, self.two * factor)


NOTHING = Pair(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """How attention mixes values over the tokens of a sequence: both quantities are linear in those of the values.

    `self_one` and `self_two` are the shares of q in the new q and in the new p; p has the rest.
    """

    self_one: float
    self_two: float

    def forward(self, value: Pair) -> Pair:
        gap = value.one - value.two
        return Pair(value.two + self.self_one * gap, value.two + self.self_two * gap)


@lru_cache(maxsize=64)
def uniform(keys: int) -> Mixing:
    """Every query sees all keys with the same weight: W_Q = W_K = 0, or as good as that."""
    return Mixing(self_one=1 / keys, self_two=1 / keys)


@lru_cache(maxsize=64)
def uniform_causal(keys: int) -> Mixing:
    """The token at place t sees t keys; averaged over places, Σ 1/t being the harmonic number."""
    harmonic = math.fsum(1 / t for t in range(1, keys + 1))
    pairs = keys * (keys - 1) / 2
    return Mixing(self_one=harmonic / keys, self_two=(keys - harmonic) / pairs if pairs else 0.0)


def sharpened(mixing: Mixing, variance: float) -> Mixing:
    """Random queries and keys: logits of that variance over the keys make Σ_j w_j² larger by its exponential.

    An approximation (log-normal weights, many keys); exact for variance 0, an upper bound of 1 at the other end.
    """
    return Mixing(self_one=min(1.0, mixing.self_one * math.exp(min(variance, 50.0))), self_two=mixing.self_two)


@dataclass(slots=True, kw_only=True)
class FeedForwardMap:
    """One feed-forward at one input."""

    width: int
    ffn_width: int
    tokens: int
    ffn_in_std: float
    ffn_out_std: float
    activation: Activation
    input: Pair
    hidden_scale: float
    output_scale: float = 1.0
    """What a norm before the last matrix multiplies with, and what it leaves of the mean over hidden units."""
    output_mean_scale: float = 1.0
    kernel: Kernel = field(init=False)
    """Of the activation at this input."""

    def __post_init__(self) -> None:
        before = self.input.scaled(self.width * self.ffn_in_std**2 * self.hidden_scale**2)
        self.kernel = kernel(self.activation, before.one, _correlation(before))

    def output(self) -> Pair:
        """q and p of F(x)."""
        return self._last_input.scaled(self.ffn_width * self.ffn_out_std**2)

    def activated(self) -> tuple[Pair, Pair]:
        """What leaves the activation: the part about its mean over hidden units, and that mean."""
        found, square = self.kernel, self.kernel.mean**2
        return Pair(found.q - square, found.p - square), Pair(square, square)

    @property
    def _last_input(self) -> Pair:
        centred, mean = self.activated()
        kept, kept_mean = self.output_scale**2, self.output_mean_scale**2
        return Pair(kept * centred.one + kept_mean * mean.one, kept * centred.two + kept_mean * mean.two)

    def gradient_at_source(self, g: Pair) -> Pair:
        """At F's input."""
        return self._gradient_before(g).scaled(self.width * self.ffn_in_std**2 * self.hidden_scale**2)

    def _gradient_before(self, g: Pair) -> Pair:
        """Of what the activation is applied to."""
        hidden = g.scaled(self.ffn_width * self.ffn_out_std**2 * self.output_scale**2)
        return Pair(hidden.one * self.kernel.slope_q, hidden.two * self.kernel.slope_p)

    def weight_gradients(self, g: Pair) -> dict[str, float]:
        """Frobenius norm by matrix."""
        hidden = self._last_input.scaled(self.ffn_width)
        before = self._gradient_before(g).scaled(self.hidden_scale**2)
        return {
            "ffn_in": _outer_norm(before, self.input.scaled(self.width), self.tokens),
            "ffn_out": _outer_norm(g, hidden, self.tokens),
        }


@dataclass(slots=True, kw_only=True)
class AttentionMap:
    """One attention at one input; for cross-attention `keys` are those of the memory, and so is `source`."""

    width: int
    tokens: int
    value_std: float
    output_std: float
    mixing: Mixing
    source: Pair
    """What keys and values are made of."""
    source_tokens: int
    value_scale: float
    output_scale: float

    @property
    def _mixed(self) -> Pair:
        value = self.source.scaled(self.width * self.value_std**2 * self.value_scale**2)
        return self.mixing.forward(value)

    def output(self) -> Pair:
        """q and p of F(x)."""
        return self._mixed.scaled(self.output_scale**2 * self.width * self.output_std**2)

    def _gradient_at_values(self, g: Pair) -> Pair:
        """Each key's share of the gradients of all queries: the transpose of the mixing."""
        mixed = g.scaled(self.width * self.output_std**2 * self.output_scale**2)
        n, m = self.tokens, self.source_tokens
        # The shares are Σ_j w_ij w_i'j, over one key, for one query and for two; over two keys it is what is left of 1.
        same_one, same_two = self.mixing.self_one, self.mixing.self_two
        one = (n * same_one * mixed.one + n * (n - 1) * same_two * mixed.two) / m
        rest = n * (1 - same_one) * mixed.one + n * (n - 1) * (1 - same_two) * mixed.two
        return Pair(one, rest / (m * (m - 1)) if m > 1 else 0.0)

    def gradient_at_source(self, g: Pair) -> Pair:
        return self._gradient_at_values(g).scaled(self.width * self.value_std**2 * self.value_scale**2)

    def weight_gradients(self, g: Pair) -> dict[str, float]:
        """Frobenius norm by matrix; those of query and key need the softmax's slope and are not predicted."""
        mixed = self._mixed.scaled(self.output_scale**2 * self.width)
        at_values = self._gradient_at_values(g).scaled(self.value_scale**2)
        return {
            "value": _outer_norm(at_values, self.source.scaled(self.width), self.source_tokens),
            "output": _outer_norm(g, mixed, self.tokens),
        }


def inner_scales(inside: Inside, place: str, width: int, centred: Pair, mean: Pair = NOTHING) -> tuple[float, float]:
    """What the functions a formula applies within F multiply a projection with, and its mean over features."""
    if place not in inside:
        return 1.0, 1.0
    atoms = Atoms(width)
    for pair, is_centred in ((centred, True), (mean, False)):
        atoms.add(pair.one, pair.two, centred=is_centred)
    value = inside[place](Moments(atoms, np.ones(2)))
    return float(value.coefficients[0]), float(value.coefficients[1])


def pair_of(x: Moments) -> Pair:
    return Pair(x.q, x.p)


def _correlation(pair: Pair) -> float:
    return pair.two / pair.one if pair.one else 0.0


def _outer_norm(gradient: Pair, value: Pair, tokens: int) -> float:
    squared = tokens * (gradient.one * value.one + (tokens - 1) * gradient.two * value.two)
    return math.sqrt(max(0.0, squared))
