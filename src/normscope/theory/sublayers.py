"""Attention and feed-forward on moments: second moments forward, gradients backward, gradients of every matrix.

Gradients have products as values have (`Products`), for the mean loss of all tokens. A matrix whose inputs are x_i and
whose outputs have the gradients g_i has the gradient Σ_i g_i x_iᵀ.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .kernels import GATED, Activation, Kernel, excess, kernel
from .mixing import NOTHING, Entry, LinearMap, Mixing, Products, make, mean_of, outer_norm, sharpened, squared
from .moments import Atoms, Moments, Unpredictable, single
from .places import RANDOM, Differing, Factors, GradientMap, Places, gap_of

_InsideF = Mapping[str, Callable[[Moments], Moments]]
NOTHING_INSIDE: _InsideF = MappingProxyType({})


class Projection(NamedTuple):
    """A matrix that F applies to what it reads."""

    name: str
    back: GradientMap
    """Gradients at F(x) to those at the matrix's output."""
    inputs: Products
    tokens: int | Places
    """Of its inputs, in each sequence."""
    onward: float
    """From there to its input."""
    of_query: bool = False
    """Whether it reads what queries are made of, in cross-attention another thing than keys and values are."""

    @property
    def length(self) -> int:
        """How many tokens that are."""
        return self.tokens.total if isinstance(self.tokens, Places) else self.tokens


def gradient_norm(g: Products, x: Products, width: int, tokens: int | Places, sequences: int) -> float:
    """‖Σ_i g_i x_iᵀ‖ over all tokens of all sequences, g and x independent of each other and x of that width."""
    if not isinstance(tokens, Places):
        return outer_norm(g, x, width, tokens, sequences)
    within, apart = tokens.sum(g, x)
    return math.sqrt(max(0.0, sequences * width * (within + (sequences - 1) * apart)))


class Map(NamedTuple):
    """One F at one input: projections, what mixes or activates them, and a last matrix."""

    output: Products
    spread: Entry
    """d · Var ‖F(x)‖² / d², beyond what is inherited from x."""
    projections: tuple[Projection, ...]
    silent: tuple[str, ...]
    """Projections that have no gradient."""
    last: str
    last_inputs: Products
    last_width: int
    last_mean: Entry = 0.0
    """E of an entry of the last matrix's inputs."""
    variance: Entry = 0.0
    """Of what an activation reads, or of logits over keys."""
    differing: Differing = RANDOM


def feed_forward(
    x: Products,
    *,
    width: int,
    ffn_width: int,
    tokens: int | Places,
    ffn_in_std: float,
    ffn_out_std: float,
    activation: Activation = "relu",
    differing: Differing = RANDOM,
    inside: _InsideF = NOTHING_INSIDE,
    apart: bool = True,
) -> Map:
    """F(x) = W₂ φ(W₁ x); SwiGLU has a second W₁, the gate's, drawn as the first.

    apart: False where tokens of other sequences are of no interest.
    """
    places = tokens if isinstance(tokens, Places) else None
    into = width * ffn_in_std * ffn_in_std
    scale = inner_scales(inside, "hidden", ffn_width, x.scaled(into), places=places)[0] if inside else 1.0
    scaled, scaled_two = squared(scale)
    variance = x.one * into * scaled
    found = kernel(activation, variance, correlation(x.two, x.one))
    other = kernel(activation, variance, correlation(x.apart, x.one)) if apart else _UNASKED
    hidden, kept, kept_two, left_mean = make(Products, (found.q, found.p, other.p)), 1.0, 1.0, found.mean
    if inside and "output" in inside:
        square, pair = squared(found.mean)
        mean = Products(square, pair, pair)
        centred = hidden.plus(mean, -1.0)
        inner, inner_mean = inner_scales(inside, "output", ffn_width, centred, mean, places=places)
        kept, kept_two = squared(inner)
        left_mean = found.mean * inner_mean
        square, pair = squared(left_mean)
        hidden = Products(centred.one * kept + square, centred.two * kept_two + pair, centred.apart * kept_two + pair)
    out = ffn_width * ffn_out_std * ffn_out_std
    back, back_two = out * kept * scaled, out * kept_two * scaled_two

    def passed(one: Entry, two: Entry, far: Entry) -> GradientMap:
        if places is not None:
            return Factors(back * one, back_two * two, back_two * far)
        return make(LinearMap, (back * one, 0.0, 0.0, back * two, back * far))

    slopes = passed(found.slope_q, found.slope_p, other.slope_p)
    projections: tuple[Projection, ...] = (make(Projection, ("ffn_in", slopes, x, tokens, into, False)),)
    silent: tuple[str, ...] = ()
    if activation in GATED and np.any(found.gate_slope_q):
        gate = passed(found.gate_slope_q, found.gate_slope_p, other.gate_slope_p)
        projections = (*projections, Projection("ffn_gate", gate, x, tokens, into))
    elif activation in GATED:
        silent = ("ffn_gate",)
    output = hidden.scaled(out)
    typical = variance if places is None else float(variance.mean())
    spread = output.one * output.one * (2 + excess(activation, typical) * width / ffn_width)
    gap, made = gap_of(x, places), gap_of(output, places)
    turned = into * mean_of(back_two * (found.slope_p + found.gate_slope_p)) * gap
    made_of = differing.activated(turned / made if made else 0.0, ffn_width / width)
    return make(Map, (output, spread, projections, silent, "ffn_out", hidden, ffn_width, left_mean, variance, made_of))


def correlation(two: Entry, one: Entry) -> Entry:
    if isinstance(one, np.ndarray):
        sizes = np.sqrt(np.outer(one, one))
        return np.divide(two, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    return two / one if one else 0.0


_UNASKED = Kernel(0.0, 0.0, 0.0, 0.0, 0.0)


def attention(
    x: Products,
    source: Products,
    *,
    width: int,
    tokens: int,
    source_tokens: int,
    query_std: float,
    key_std: float,
    value_std: float,
    output_std: float,
    differing: Differing = RANDOM,
    inside: _InsideF = NOTHING_INSIDE,
) -> Map:
    """Softmax attention of queries made of x over keys and values made of `source`, a memory's in cross-attention."""
    value_into = width * value_std * value_std
    value_scale = _square_of_scale(inside, "value", width, source, value_into)
    value = source.scaled(value_into * value_scale)
    query_into, key_into = width * query_std * query_std, width * key_std * key_std
    query, apart_keys, query_scale, key_scale = NOTHING, 0.0, 1.0, 1.0
    if query_into and key_into:
        query_scale = _square_of_scale(inside, "query", width, x, query_into)
        key_scale = _square_of_scale(inside, "key", width, source, key_into)
        query = x.scaled(query_into * query_scale)
        # A logit q·k/√K has the variance q_q q_k over random matrices; what all keys share moves no weight.
        apart_keys = max(0.0, (source.one - source.two) * differing.wider * key_into * key_scale)
    logits = query.one * apart_keys
    weights = sharpened(source_tokens, logits, query.two * apart_keys, differing.narrow / width)
    inputs = weights.forward(value)
    output_scale = _square_of_scale(inside, "output", width, inputs, 1.0)
    if output_scale != 1.0:
        inputs = inputs.scaled(output_scale)
    out = width * output_std * output_std
    back = out * output_scale
    at_values = _gradient_at_values(weights, tokens, source_tokens, back * value_scale)
    projections: tuple[Projection, ...] = (
        make(Projection, ("value", at_values, source, source_tokens, value_into, False)),
    )
    silent: tuple[str, ...] = ("query", "key")
    if apart_keys and query.one:
        apart_values = max(0.0, value.one - value.two) * differing.wider * back
        to_query, to_key = _gradients_at_logits(
            weights, tokens, source_tokens, apart_values, query, apart_keys, differing.narrow / width
        )
        projections += (
            Projection("query", _times(to_query, query_scale), x, tokens, query_into, True),
            Projection("key", _times(to_key, key_scale * differing.wider), source, source_tokens, key_into),
        )
        silent = ()
    output = inputs.scaled(out)
    # Two random matrices: values' and the last.
    spread = 4 * output.one * output.one
    return make(Map, (output, spread, projections, silent, "output", inputs, width, 0.0, logits, differing.attended()))


def _square_of_scale(inside: _InsideF, place: str, width: int, read: Products, into: float) -> float:
    """What a function within F multiplies the second moments of a projection with."""
    if not inside or place not in inside:
        return 1.0
    scale: float = inner_scales(inside, place, width, read.scaled(into))[0]
    return scale * scale


def _times(linear: LinearMap, factor: float) -> LinearMap:
    return linear if factor == 1.0 else LinearMap(*(entry * factor for entry in linear))


def _gradient_at_values(weights: Mixing, n: int, m: int, factor: float) -> LinearMap:
    """Each key's share of the gradients of all queries: the transpose of the mixing.

    The shares are Σ_j w_ij w_i'j, over one key, for one query and for two; over two keys it is what is left of 1.
    """
    one, two = weights.self_one, weights.self_two
    mine = factor * n / m
    theirs = mine / (m - 1) if m > 1 else 0.0
    entries = (mine * one, mine * (n - 1) * two, theirs * (1 - one), theirs * (n - 1) * (1 - two), mine * n / m)
    return make(LinearMap, entries)


def _gradients_at_logits(
    weights: Mixing, n: int, m: int, apart_values: float, query: Products, apart_keys: float, common: float
) -> tuple[LinearMap, LinearMap]:
    """From gradients at F(x), of which `apart_values` has the factor, to those at queries and at keys.

    A logit z_ij has the gradient w_ij g_i·(v_j - Σ_k w_ik v_k), which vanishes where values are alike. A query's is
    Σ_j of that times k_j less the keys' mean; a key's Σ_i of that times q_i, and over all keys they add up to 0.
    Values and keys are made of the same tokens, of which m in so many directions are not orthogonal: the share
    `common` of (Σ_j w_j (1 - w_j))² is left on average.
    """
    scatter, own = common * (1 - weights.self_one) ** 2, 1 + common
    one, two = (apart_values * (part * own + scatter) for part in (weights.apart_one, weights.apart_two))
    to_query = LinearMap(one * apart_keys, 0.0, 0.0, two * apart_keys, 0.0)
    own, others = n / m * one * query.one, n * (n - 1) / m * two * query.two
    left = -1 / (m - 1) if m > 1 else 0.0
    return to_query, LinearMap(own, others, own * left, others * left, 0.0)


def inner_scales(
    inside: _InsideF,
    place: str,
    width: int,
    centred: Products,
    mean: Products = NOTHING,
    *,
    places: Places | None = None,
) -> tuple[Entry, Entry]:
    """What the functions a formula applies within F multiply a projection with, and its mean over features."""
    if place not in inside:
        return 1.0, 1.0
    atoms = Atoms(width, places=places)
    x = single(atoms, atoms.add(*centred))
    if np.any(mean.one):
        x = x + single(atoms, atoms.add(*mean, centred=False))
    value = inside[place](x)
    if atoms.remainders:
        raise Unpredictable(
            f"the formula has a norm inside the sub-layer (at its {place}), and theory follows dyt and derf on the "
            "stream alone: this placement can be predicted with layer-norm or rms-norm"
        )
    if value.lane is None:
        return value.scale, value.scale
    found = value.coefficients
    return (float(found[0]), float(found[1])) if places is None else (found[0], found[1])
