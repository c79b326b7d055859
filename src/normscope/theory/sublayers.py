"""Attention and feed-forward on moments: second moments forward, gradients backward, gradients of
every matrix.

Gradients have products as values have (`Products`), for the mean loss of all tokens. A matrix whose
inputs are x_i and whose outputs have the gradients g_i has the gradient Σ_i g_i x_iᵀ.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .attending import _Alike, _AtPlaces
from .kernels import GATED, Activation, Kernel, excess, kernel
from .mixing import (
    NOTHING,
    Entry,
    LinearMap,
    Products,
    make,
    mean_of,
    outer_square,
    squared,
    vanishes,
)
from .moments import Atoms, Moments, Unpredictable, single
from .places import RANDOM, ByPlace, Differing, Factors, GradientMap, Places, gap_of

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
    """Whether it reads what queries are made of, in cross-attention another thing than keys and
    values are.
    """

    @property
    def length(self) -> int:
        """How many tokens that are."""
        return self.tokens.total if isinstance(self.tokens, Places) else self.tokens


def gradient_square(
    g: Products, x: Products, width: int, tokens: int | Places, sequences: int
) -> float:
    """‖Σ_i g_i x_iᵀ‖² over all tokens of all sequences, g and x independent of each other and x of
    that width.
    """
    if not isinstance(tokens, Places):
        return outer_square(g, x, width, tokens, sequences)
    within, apart = tokens.sum(g, x)
    return sequences * width * (within + (sequences - 1) * apart)


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
    scale = (
        inner_scales(inside, "hidden", ffn_width, x.scaled(into), places=places)[0]
        if inside
        else 1.0
    )
    scaled, scaled_two = squared(scale)
    variance = x.one * into * scaled
    found = kernel(activation, variance, correlation(x.two, x.one))
    other = kernel(activation, variance, correlation(x.apart, x.one)) if apart else _UNASKED
    hidden, kept, kept_two, left_mean = (
        make(Products, (found.q, found.p, other.p)),
        1.0,
        1.0,
        found.mean,
    )
    if inside and "output" in inside:
        square, pair = squared(found.mean)
        mean = Products(square, pair, pair)
        centred = hidden.plus(mean, -1.0)
        inner, inner_mean = inner_scales(inside, "output", ffn_width, centred, mean, places=places)
        kept, kept_two = squared(inner)
        left_mean = found.mean * inner_mean
        square, pair = squared(left_mean)
        hidden = Products(
            centred.one * kept + square,
            centred.two * kept_two + pair,
            centred.apart * kept_two + pair,
        )
    out = ffn_width * ffn_out_std * ffn_out_std
    back, back_two = out * kept * scaled, out * kept_two * scaled_two

    def passed(one: Entry, two: Entry, far: Entry) -> GradientMap:
        if places is not None:
            return Factors(back * one, back_two * two, back_two * far)
        return make(LinearMap, (back * one, 0.0, 0.0, back * two, back * far))

    slopes = passed(found.slope_q, found.slope_p, other.slope_p)
    projections: tuple[Projection, ...] = (
        make(Projection, ("ffn_in", slopes, x, tokens, into, False)),
    )
    silent: tuple[str, ...] = ()
    if activation in GATED and not vanishes(found.gate_slope_q):
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
    return make(
        Map,
        (
            output,
            spread,
            projections,
            silent,
            "ffn_out",
            hidden,
            ffn_width,
            left_mean,
            variance,
            made_of,
        ),
    )


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
    tokens: int | Places,
    source_tokens: int | Places,
    query_std: float,
    key_std: float,
    value_std: float,
    output_std: float,
    differing: Differing = RANDOM,
    inside: _InsideF = NOTHING_INSIDE,
) -> Map:
    """Softmax attention of queries made of x over keys and values made of `source`, a memory's in
    cross-attention.
    """

    def scaled(
        made: Products, place: str, at: int | Places
    ) -> tuple[Products, tuple[Entry, Entry]]:
        """By what a function within F multiplies it with."""
        if place not in inside:
            return made, _UNSCALED
        scale, _ = inner_scales(
            inside, place, width, made, places=at if isinstance(at, Places) else None
        )
        return _by_scales(made, squared(scale)), squared(scale)

    def projected(
        read: Products, std: float, place: str, at: int | Places
    ) -> tuple[Products, tuple[Entry, Entry]]:
        return scaled(read.scaled(width * std * std), place, at)

    value, value_scales = projected(source, value_std, "value", source_tokens)
    query, query_scales, key, key_scales = NOTHING, _UNSCALED, NOTHING, _UNSCALED
    if query_std and key_std:
        query, query_scales = projected(x, query_std, "query", tokens)
        key, key_scales = projected(source, key_std, "key", source_tokens)
    attended = _AtPlaces if isinstance(tokens, Places) else _Alike
    weights = attended(tokens, source_tokens, query, key, value, width, differing)  # type: ignore[arg-type]
    inputs, output_scales = scaled(weights.forward(), "output", tokens)
    out = width * output_std * output_std
    to_value, to_query, to_key = weights.back(out)
    at_values = _between(output_scales, to_value, value_scales)
    projections: tuple[Projection, ...] = (
        make(
            Projection,
            ("value", at_values, source, source_tokens, width * value_std * value_std, False),
        ),
    )
    if weights.draws:
        at_queries, at_keys = (
            _between(output_scales, to_query, query_scales),
            _between(output_scales, to_key, key_scales),
        )
        projections += (
            make(Projection, ("query", at_queries, x, tokens, width * query_std * query_std, True)),
            make(
                Projection,
                ("key", at_keys, source, source_tokens, width * key_std * key_std, False),
            ),
        )
    silent = () if weights.draws else ("query", "key")
    output = inputs.scaled(out)
    # Two random matrices: values' and the last.
    spread, variance, made_of = 4 * output.one * output.one, weights.variance, differing.attended()
    return make(
        Map, (output, spread, projections, silent, "output", inputs, width, 0.0, variance, made_of)
    )


_UNSCALED = (1.0, 1.0)


def _by_scales(products: Products, scales: tuple[Entry, Entry]) -> Products:
    one, two = scales
    return make(Products, (products.one * one, products.two * two, products.apart * two))


def _between(
    before: tuple[Entry, Entry], back: GradientMap, after: tuple[Entry, Entry]
) -> GradientMap:
    """Gradients scaled, through a map, and scaled again."""
    if before is after is _UNSCALED:
        return back
    if isinstance(back, LinearMap):
        return LinearMap(*(entry * before[0] * after[0] for entry in back))
    return ByPlace(
        lambda g: _by_scales(back(_by_scales(g, before)), after),
        lambda changed: back.forward(changed * after[1]) * before[1],
    )


def inner_scales(
    inside: _InsideF,
    place: str,
    width: int,
    centred: Products,
    mean: Products = NOTHING,
    *,
    places: Places | None = None,
) -> tuple[Entry, Entry]:
    """What the functions a formula applies within F multiply a projection with, and its mean over
    features.
    """
    if place not in inside:
        return 1.0, 1.0
    atoms = Atoms(width, places=places)
    x = single(atoms, atoms.add(*centred))
    if not vanishes(mean.one):
        x = x + single(atoms, atoms.add(*mean, centred=False))
    value = inside[place](x)
    if atoms.remainders:
        raise Unpredictable(
            f"the formula has a norm inside the sub-layer (at its {place}), and theory follows dyt "
            "and derf on the stream alone: this placement can be predicted with layer-norm or "
            "rms-norm"
        )
    if value.lane is None:
        return value.scale, value.scale
    found = value.coefficients
    return (float(found[0]), float(found[1])) if places is None else (found[0], found[1])
