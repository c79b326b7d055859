"""What the sign of a matrix's gradient does to the matrix's inputs: E[sign(Σ_t g_t u_t) u_s].

An entry of the gradient is Σ_t g_t u_t over tokens, g the gradient at one output and u the value of
one input. For one output, whose g the sum over inputs has in common, this is E over an input:
`response`. Over the inputs, which are many, a matrix W with δW = -η sign G moves its output s by -η
times as many responses, and by what single inputs scatter.

Expectations over Gaussians that the tokens of a sequence share in part are means over fixed points.
There is one set of points for a number of tokens, whatever the correlation, so that curves over
depth are smooth and the same every time. A mean over points is one over tokens too: its error is
below a hundredth.

The equation is T19 of docs/theory.md.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..kernels import GATED, Activation, activated, gate_slope, slope
from ..mixing import Array
from .tokens import Alike, Tokens, Whole, powered

_VALUES = 24_000
"""Of one set, over all of its tokens."""
_FEWEST = 1000


@lru_cache(maxsize=16)
def _points(tokens: int, seed: int) -> tuple[Array, Array]:
    """Standard normals (S, tokens) as what tokens share, (S, 1), and the rest of them."""
    count = max(_FEWEST, _VALUES // tokens)
    drawn = np.random.default_rng(seed).standard_normal((count, tokens))
    drawn /= math.sqrt(float(np.square(drawn).mean()))
    shared = drawn.mean(1, keepdims=True)
    shared /= math.sqrt(float(np.square(shared).mean()) * tokens)
    return shared, drawn - drawn.mean(1, keepdims=True)


def normals(tokens: int, correlation: float, seed: int) -> Array:
    """(S, tokens) of variance 1 and that correlation of two tokens; another seed, another
    variable.
    """
    shared, rest = _points(tokens, seed)
    together = math.sqrt(max(0.0, 1 + (tokens - 1) * correlation))
    return together * shared + math.sqrt(max(0.0, 1 - correlation)) * rest


def mean_product(left: Array, right: Array) -> Alike:
    """E left_s right_s, and E left_s right_t of two tokens; (S, tokens) each."""
    points, tokens = left.shape
    one = float(np.vdot(left, right)) / (points * tokens)
    if tokens == 1:
        return Alike(one, 0.0)
    every = float(left.sum(1) @ right.sum(1)) / points
    return Alike(one, (every / tokens - one) / (tokens - 1))


def rounded(correlation: float) -> float:
    """To three digits of what is left to 1, under which kernels are remembered."""
    return 1 - float(f"{1 - min(1.0, correlation):.3g}")


_GRADIENT = 1
_OWN = 2
_GATE = 3
"""Seeds of variables that are independent of one another."""
_GRADIENTS, _INPUTS = 1000, 1500
"""Points at most where both are summed over."""
_LEAST = 1e-12


class Response(NamedTuple):
    gram: Tokens
    """Of responses at two tokens."""
    with_gradient: Tokens
    """E g_t · response_s."""


@lru_cache(maxsize=4096)
def to_gaussian(tokens: int, inputs: float, gradients: float) -> Response:
    """Of Gaussian inputs and gradients of variance 1 and those correlations: √(2/π) Σg / √(gᵀ Σ g),
    Σ the inputs' covariance.

    Equation T19.
    """
    g = normals(tokens, gradients, _GRADIENT)
    found = _to_gaussian(g, inputs)
    return Response(mean_product(found, found), mean_product(g, found))


def _to_gaussian(g: Array, inputs: float | Array) -> Array:
    by_place = isinstance(inputs, np.ndarray)
    covariance = g @ inputs if by_place else (1 - inputs) * g + inputs * g.sum(1, keepdims=True)
    square = np.maximum((g * covariance).sum(1, keepdims=True), 0.0)
    least = _LEAST * float(square.max()) if by_place else _LEAST
    unit: Array = np.divide(covariance, np.sqrt(square), out=np.zeros_like(g), where=square > least)
    return math.sqrt(2 / math.pi) * unit


@lru_cache(maxsize=4096)
def to_hidden(
    tokens: int,
    activation: Activation,
    variance: float,
    inputs: float,
    gradients: float,
    mean: float,
) -> Response:
    """Of hidden units φ(z), z with that correlation of tokens and that variance.

    mean: what the units have for a mean, of their root mean square; a norm within F may have taken
    it off.

    By points for gradients and points for inputs: as many inputs as there are, a real matrix would
    have.
    """
    units = _units(tokens, activation, variance, inputs, mean)
    g = normals(tokens, gradients, _GRADIENT)[:_GRADIENTS]
    count = len(units)
    found = np.sign(g @ units.T) @ units / count
    # A mean over finitely many inputs scatters about the one over all.
    own, gram = mean_product(units, units), mean_product(found, found)
    return Response(gram.plus(own, -1 / count).scaled(1 / (1 - 1 / count)), mean_product(g, found))


@lru_cache(maxsize=64)
def _units(
    tokens: int, activation: Activation, variance: float, inputs: float, mean: float
) -> Array:
    """(S, tokens) of mean square 1 and that mean."""
    z = math.sqrt(variance) * normals(tokens, max(0.0, inputs), _OWN)[:_INPUTS]
    units = activated(activation, z)
    if activation in GATED:
        units = units * normals(tokens, max(0.0, inputs), _GATE)[:_INPUTS]
    units -= units.mean()
    units *= math.sqrt(max(0.0, 1 - mean**2) / float(np.square(units).mean()))
    shifted: Array = units + mean
    return shifted


class Slopes(NamedTuple):
    """Means over what hidden units let through: slopes φ' of mean square 1, gradients b above them
    of variance 1.
    """

    slope: Alike
    """E φ'_s φ'_t."""
    own: Alike
    """Gram matrix of φ'_s φ'_s b_s: what a token's gradient makes of itself on its way down and up
    again.
    """
    all_: Alike
    """Of φ'_s Σ_t φ'_t b_t."""
    own_with_all: Alike
    sign: Alike
    """Of φ'_s times the response to gradients φ' b."""
    sign_with_own: Alike
    sign_with_all: Alike
    sign_with_gradient: Alike
    """E b_t φ'_s · response_s."""


@lru_cache(maxsize=4096)
def slopes(
    tokens: int,
    activation: Activation,
    gate: bool,
    variance: float,
    inputs: float,
    gradients: float,
) -> Slopes:
    """Given the correlation of inputs, that of gradients above the activation, and the variance of
    z.
    """
    z = normals(tokens, inputs, _OWN)
    other = normals(tokens, inputs, _GATE)
    sigma = math.sqrt(variance)
    found = (
        gate_slope(activation, sigma * z, sigma * other) if gate else slope(activation, sigma * z)
    )
    found /= math.sqrt(float(np.square(found).mean()))
    b = normals(tokens, gradients, _GRADIENT)
    g = found * b
    own, all_ = found * g, found * g.sum(1, keepdims=True)
    sign = found * _to_gaussian(g, inputs)
    return Slopes(
        slope=mean_product(found, found),
        own=mean_product(own, own),
        all_=mean_product(all_, all_),
        own_with_all=_both_ways(own, all_),
        sign=mean_product(sign, sign),
        sign_with_own=_both_ways(sign, own),
        sign_with_all=_both_ways(sign, all_),
        sign_with_gradient=mean_product(b, sign),
    )


def _both_ways(left: Array, right: Array) -> Alike:
    """Twice the product of two different values: what their sum's Gram matrix has of them."""
    return mean_product(left, right).scaled(2.0)


def normals_by_place(gram: Array, seed: int) -> Array:
    """(S, tokens) with that covariance."""
    found: Array = _whitened(len(gram), seed) @ powered(gram, 0.5)
    return found


@lru_cache(maxsize=16)
def _whitened(tokens: int, seed: int) -> Array:
    drawn = normals(tokens, 0.0, seed)
    found: Array = drawn @ powered(mean_by_place(drawn, drawn).matrix, -0.5)
    return found


def mean_by_place(left: Array, right: Array) -> Whole:
    """E left_s right_t; (S, tokens) each."""
    return Whole(left.T @ right / len(left))


def to_gaussian_by_place(inputs: Array, gradients: Array) -> Response:
    """As `to_gaussian`, of inputs and gradients with those Gram matrices."""
    g = normals_by_place(gradients, _GRADIENT)
    found = _to_gaussian(g, inputs)
    return Response(mean_by_place(found, found), mean_by_place(g, found))


def to_hidden_by_place(
    activation: Activation, z: Array, inputs: Array, mean: Array, gradients: Array
) -> Response:
    """As `to_hidden`: z with that Gram matrix, whose units have those squares (the diagonal of
    `inputs`) and means.
    """
    values = normals_by_place(z, _OWN)[:_INPUTS]
    units = activated(activation, values)
    if activation in GATED:
        units = units * normals_by_place(z, _GATE)[:_INPUTS]
    units = units - units.mean(0)
    size = np.sqrt(
        np.maximum(np.diag(inputs) - mean**2, 0.0) / np.maximum(np.square(units).mean(0), _TINY)
    )
    units = units * size + mean
    g, count = normals_by_place(gradients, _GRADIENT)[:_GRADIENTS], len(units)
    found = np.sign(g @ units.T) @ units / count
    gram = (
        mean_by_place(found, found)
        .plus(mean_by_place(units, units), -1 / count)
        .scaled(1 / (1 - 1 / count))
    )
    return Response(gram, mean_by_place(g, found))


_TINY = 1e-300


class _Passed(NamedTuple):
    """What hidden units let through of what moves before them, as `Slopes` says, and what of it
    goes along b.
    """

    gram: Whole
    with_gradient: Whole
    """E b_t · what is let through at s."""
    single: Whole
    """E φ'_s φ'_t u_s u_t of single inputs, less the same of their mean response."""


def slope_squares(activation: Activation, *, gate: bool, z: Array) -> Array:
    """(tokens,) E φ'² over the points that `through_units` takes."""
    first, second = normals_by_place(z, _OWN), normals_by_place(z, _GATE)
    found = gate_slope(activation, first, second) if gate else slope(activation, first)
    squares: Array = np.square(found).mean(0)
    return squares


def through_units(
    activation: Activation,
    *,
    gate: bool,
    z: Array,
    gradients: Array,
    inputs: Array,
    coefficients: Array,
    sign: float,
) -> _Passed:
    """Of changes: those coefficients of the gradients below the activation, and so much of the
    response to their sign.

    gradients: the Gram matrix of b, above the slopes. inputs: of an entry of what the matrix reads.
    """
    first, second = normals_by_place(z, _OWN), normals_by_place(z, _GATE)
    found = gate_slope(activation, first, second) if gate else slope(activation, first)
    b = normals_by_place(gradients, _GRADIENT)
    g = found * b
    response = found * _to_gaussian(g, inputs) if sign else np.zeros_like(g)
    moved = found * (g @ coefficients) + sign * response
    single = Whole(mean_by_place(found, found).matrix * inputs).plus(
        mean_by_place(response, response), -1.0
    )
    return _Passed(mean_by_place(moved, moved), mean_by_place(b, sign * response), single)
