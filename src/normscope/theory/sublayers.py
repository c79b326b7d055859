"""Attention and feed-forward on moments: second moments forward, gradients backward, gradients of
every matrix.

Gradients have products as values have (`Products`), for the mean loss of all tokens. A matrix whose
inputs are x_i and whose outputs have the gradients g_i has the gradient Σ_i g_i x_iᵀ.

The equations are T4 to T9, T11 and T21 of docs/theory.md.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .attending.alike import _Alike
from .attending.by_place import _AtPlaces
from .attending.positions import rotated, rotated_back
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
    """Holds a matrix that F applies to what it reads."""

    name: str
    back: GradientMap
    """Gradients at F(x) to those at the matrix's output."""
    inputs: Products
    tokens: int | Places
    """Tokens of its inputs, in each sequence."""
    onward: float
    """From there to its input."""
    of_query: bool = False
    """True where it reads what queries are made of, which in cross-attention is not what keys and
    values are made of.
    """

    @property
    def length(self) -> int:
        """Returns how many tokens its inputs have in each sequence."""
        return self.tokens.total if isinstance(self.tokens, Places) else self.tokens


def gradient_square(
    g: Products, x: Products, width: int, tokens: int | Places, sequences: int
) -> float:
    """‖Σ_i g_i x_iᵀ‖² over all tokens of all sequences, g and x independent of each other and x of
    that width.

    Equation T11.
    """
    if not isinstance(tokens, Places):
        return outer_square(g, x, width, tokens, sequences)
    within, apart = tokens.sum(g, x)
    return sequences * width * (within + (sequences - 1) * apart)


class Map(NamedTuple):
    """Holds what one F does with one input: projections, what mixes or activates them, and a last
    matrix.
    """

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
    """The variance of what an activation reads, or of logits over keys."""
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
    """Returns the map F(x) = W₂ φ(W₁ x); SwiGLU has a second W₁, the gate's, drawn as the first.

    apart: False where products between sequences are not asked for.

    Equations T4, T5, T6.
    """
    places = tokens if isinstance(tokens, Places) else None
    # d σ_in², the gain of W₁; what a function within F multiplies comes on top.
    into = width * ffn_in_std * ffn_in_std
    inner, _ = inner_scales(inside, "hidden", ffn_width, x.scaled(into), places=places)
    scaled, scaled_two = squared(inner)
    variance = x.one * into * scaled
    near = kernel(activation, variance, correlation(x.two, x.one))
    far = kernel(activation, variance, correlation(x.apart, x.one)) if apart else _UNASKED
    activated = make(Products, (near.one, near.two, far.two))
    hidden = _hidden_units(activated, near.mean, ffn_width, inside, places)
    # d_ff σ_out², the gain of W₂ both ways.
    out = ffn_width * ffn_out_std * ffn_out_std
    kept, kept_two = hidden.scales
    back = out * kept * scaled
    back_two = out * kept_two * scaled_two

    def passed(one: Entry, two: Entry, apart: Entry) -> GradientMap:
        if places is not None:
            return Factors(back * one, back_two * two, back_two * apart)
        return make(LinearMap, (back * one, 0.0, 0.0, back * two, back * apart))

    def projection(name: str, slopes: GradientMap) -> Projection:
        return make(Projection, (name, slopes, x, tokens, into, False))

    projections = [projection("ffn_in", passed(near.slope_one, near.slope_two, far.slope_two))]
    silent: tuple[str, ...] = ()
    if activation in GATED and vanishes(near.gate_slope_one):
        silent = ("ffn_gate",)
    elif activation in GATED:
        gate = passed(near.gate_slope_one, near.gate_slope_two, far.gate_slope_two)
        projections.append(projection("ffn_gate", gate))
    output = hidden.products.scaled(out)
    # 2 q² of Gaussian outputs, and the scatter of d_ff units (T4).
    typical = variance if places is None else float(variance.mean())
    spread = output.one * output.one * (2 + excess(activation, typical) * width / ffn_width)
    # What slopes make of q − p, as a share of what comes out of it (T10).
    let_through = into * mean_of(back_two * (near.slope_two + near.gate_slope_two))
    share = _share_of_gap(x, output, let_through, places)
    made_of = differing.activated(share, ffn_width / width)
    matrices = (tuple(projections), silent, "ffn_out", hidden.products, ffn_width, hidden.mean)
    return make(Map, (output, spread, *matrices, variance, made_of))


def _share_of_gap(
    x: Products, output: Products, let_through: float, places: Places | None
) -> float:
    """Returns how much of an output's q − p is what slopes let through of the input's. Equation
    T10.
    """
    made = gap_of(output, places)
    return let_through * gap_of(x, places) / made if made else 0.0


class _Hidden(NamedTuple):
    """The units of a feed-forward, as its last matrix reads them."""

    products: Products
    mean: Entry
    """E of a unit."""
    scales: tuple[Entry, Entry]
    """Factors by which a function within F multiplies units less their mean: squares of one token,
    and products of two.
    """


def _hidden_units(
    activated: Products, mean: Entry, ffn_width: int, inside: _InsideF, places: Places | None
) -> _Hidden:
    """Returns what a function within F makes of units that an activation has made: a norm there
    takes off part of their mean over features. Equations T2 and T5.
    """
    if "output" not in inside:
        return _Hidden(activated, mean, _UNSCALED)
    # A norm there takes off part of the units' mean, and the rest of them is another matter.
    square, pair = squared(mean)
    of_mean = Products(square, pair, pair)
    centred = activated.plus(of_mean, -1.0)
    scale, mean_scale = inner_scales(inside, "output", ffn_width, centred, of_mean, places=places)
    kept, kept_two = squared(scale)
    left_mean = mean * mean_scale
    square, pair = squared(left_mean)
    products = Products(
        centred.one * kept + square,
        centred.two * kept_two + pair,
        centred.apart * kept_two + pair,
    )
    return _Hidden(products, left_mean, (kept, kept_two))


def correlation(two: Entry, one: Entry) -> Entry:
    """Returns ρ = p / q of two tokens, 0 where there is nothing; by place p_st / √(q_s q_t).
    Equation T5.
    """
    if isinstance(one, np.ndarray):
        sizes = np.sqrt(np.outer(one, one))
        return np.divide(two, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    return two / one if one else 0.0


_UNASKED = Kernel(0.0, 0.0, 0.0, 0.0, 0.0)
_UNSCALED = (1.0, 1.0)
"""Factors of a matrix's outputs where no function stands within F."""


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
    turned: Entry | None = None,
) -> Map:
    """Returns the map of softmax attention: queries made of x over keys and values made of
    `source`, a memory's in cross-attention.

    turned: what rotary positions leave of two tokens' products (`attending/positions.py`).

    Equations T7, T9 and T21.
    """
    # d σ², the gain of each matrix.
    into_query = width * query_std * query_std
    into_key = width * key_std * key_std
    into_value = width * value_std * value_std
    out = width * output_std * output_std
    scaled = partial(_scaled_inside, inside, width)
    value = scaled(source.scaled(into_value), "value", source_tokens)
    # Without both, all logits are 0 and no query or key has a gradient.
    query = key = _Scaled(NOTHING, _UNSCALED)
    if query_std and key_std:
        query = scaled(x.scaled(into_query), "query", tokens).turned(turned)
        key = scaled(source.scaled(into_key), "key", source_tokens).turned(turned)
    attended = _AtPlaces if isinstance(tokens, Places) else _Alike
    weights = attended(
        queries=tokens,  # type: ignore[arg-type]
        keys=source_tokens,  # type: ignore[arg-type]
        query=query.products,
        key=key.products,
        value=value.products,
        width=width,
        differing=differing,
    )
    read = scaled(weights.forward(), "output", tokens)
    to_value, to_query, to_key = weights.back(out)
    at_values = _between(read.scales, to_value, value.scales)
    projections = [make(Projection, ("value", at_values, source, source_tokens, into_value, False))]
    if weights.draws:
        at_queries = _between(read.scales, rotated_back(to_query, turned), query.scales)
        at_keys = _between(read.scales, rotated_back(to_key, turned), key.scales)
        projections += [
            make(Projection, ("query", at_queries, x, tokens, into_query, True)),
            make(Projection, ("key", at_keys, source, source_tokens, into_key, False)),
        ]
    silent = () if weights.draws else ("query", "key")
    output = read.products.scaled(out)
    spread = 4 * output.one * output.one  # two random matrices: values' and the last
    matrices = (tuple(projections), silent, "output", read.products, width, 0.0)
    return make(Map, (output, spread, *matrices, weights.variance, differing.attended()))


class _Scaled(NamedTuple):
    """Holds the moments of what a matrix has made, behind the function within F that stands
    there.
    """

    products: Products
    scales: tuple[Entry, Entry]
    """Its factors: squares of one token, and products of two."""

    def turned(self, by: Entry | None) -> "_Scaled":
        """Returns the same turned by where tokens stand, as rotary positions do. Equation T21."""
        return self if by is None else self._replace(products=rotated(self.products, by))


def _scaled_inside(
    inside: _InsideF, width: int, products: Products, place: str, at: int | Places
) -> _Scaled:
    """Returns what the function within F at that place makes of a matrix's outputs. Equation T2."""
    if place not in inside:
        return _Scaled(products, _UNSCALED)
    places = at if isinstance(at, Places) else None
    scale, _ = inner_scales(inside, place, width, products, places=places)
    scales = squared(scale)
    return _Scaled(_by_scales(products, scales), scales)


def _by_scales(products: Products, scales: tuple[Entry, Entry]) -> Products:
    """Multiplies products of one token and of two by factors of their own. Equation T1."""
    one, two = scales
    return make(Products, (products.one * one, products.two * two, products.apart * two))


def _between(
    before: tuple[Entry, Entry], back: GradientMap, after: tuple[Entry, Entry]
) -> GradientMap:
    """Returns the map of gradients that are scaled, mapped, and scaled again. Equations T2 and
    T9.
    """
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
    """Returns the factors by which the function that a formula applies within F multiplies a
    projection, and the projection's mean over features. Equation T2.
    """
    if place not in inside:
        return 1.0, 1.0
    # The function is read as a formula's: over a stack of one part, and of a mean if there is one.
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
