"""The response of a matrix's inputs to the sign of its gradient: E[sign(Σ_t g_t u_t) u_s].

An entry of the gradient is Σ_t g_t u_t over tokens, g the gradient at one output and u the value of
one input. For one output, whose g the sum over inputs has in common, the response is E over an
input. Over the inputs, which are many, a matrix W with δW = −η sign G moves its output s by −η
times as many responses, and by what single inputs scatter.

Expectations over Gaussians that the tokens of a sequence share in part are means over fixed points.
There is one set of points for a number of tokens, whatever the correlation, so that curves over
depth are smooth and the same every time. A mean over points is one over tokens too: its error is
below a hundredth.

The equations are T19 and T20 of docs/theory.md.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..kernels import GATED, Activation, activated, gate_slope, slope
from ..mixing import Array
from .tokens import Alike, Tokens, Whole, powered

_VALUES = 24_000
"""Values of one set of points, over all of its tokens: a mean over them errs by 1/√24,000, which is
0.6 %.
"""
_FEWEST = 1000
"""Points of a set at least, however many tokens it has."""


@lru_cache(maxsize=16)
def _points(tokens: int, seed: int) -> tuple[Array, Array]:
    """Returns standard normals (S, tokens) in two parts: what tokens share, (S, 1), and the rest of
    them. Equation T19.
    """
    count = max(_FEWEST, _VALUES // tokens)
    drawn = np.random.default_rng(seed).standard_normal((count, tokens))
    # Scaled so that variances over the points are 1 to the last digit, and do not err by a mean's
    # own scatter.
    drawn /= math.sqrt(float(np.square(drawn).mean()))
    shared = drawn.mean(1, keepdims=True)
    # A mean over n tokens has the variance 1/n.
    shared /= math.sqrt(float(np.square(shared).mean()) * tokens)
    return shared, drawn - drawn.mean(1, keepdims=True)


def normals(tokens: int, correlation: float, seed: int) -> Array:
    """Returns (S, tokens) of variance 1 and that correlation of two tokens. Different seeds give
    independent variables. Equation T19.
    """
    shared, rest = _points(tokens, seed)
    # The eigenvalues of the correlations: of what tokens share, and of what they do not.
    of_shared = max(0.0, 1 + (tokens - 1) * correlation)
    of_rest = max(0.0, 1 - correlation)
    return math.sqrt(of_shared) * shared + math.sqrt(of_rest) * rest


def mean_product(left: Array, right: Array) -> Alike:
    """Returns E left_s right_s and E left_s right_t of two tokens; (S, tokens) each. Equation
    T19.
    """
    points, tokens = left.shape
    one = float(np.vdot(left, right)) / (points * tokens)
    if tokens == 1:
        return Alike(one, 0.0)
    # Over all pairs of tokens, a token with itself among them.
    every = float(left.sum(1) @ right.sum(1)) / points
    two = (every / tokens - one) / (tokens - 1)
    return Alike(one, two)


def rounded(correlation: float) -> float:
    """Returns a correlation to three digits of what is left to 1, under which kernels are
    remembered: 0.98765 becomes 0.9877, and 0.99998765 becomes 0.9999877. Equation T19.
    """
    return 1 - float(f"{1 - min(1.0, correlation):.3g}")


_GRADIENT = 1
"""The seed of gradients g. Different seeds make variables independent."""
_OWN = 2
"""The seed of pre-activations z."""
_GATE = 3
"""The seed of a gate's partner u."""
_GRADIENTS = 1000
"""Points for gradients at most where points for inputs are summed over as well."""
_INPUTS = 1500
"""Points for inputs there."""
_LEAST = 1e-12
"""A square below which a gradient is rounding of 0, as a share of the largest."""


class Response(NamedTuple):
    """Holds the Gram matrix of responses, and their products with gradients."""

    gram: Tokens
    """The Gram matrix of responses at two tokens."""
    with_gradient: Tokens
    """E g_t · response_s."""


@lru_cache(maxsize=4096)
def to_gaussian(tokens: int, inputs: float, gradients: float) -> Response:
    """Returns the response of Gaussian inputs to gradients, all of variance 1 and with those
    correlations of two tokens: √(2/π) Σ g / √(gᵀ Σ g), Σ the inputs' covariance. Equation T19.
    """
    g = normals(tokens, gradients, _GRADIENT)
    found = _to_gaussian(g, inputs)
    return Response(mean_product(found, found), mean_product(g, found))


def _to_gaussian(g: Array, inputs: float | Array) -> Array:
    """Returns (S, tokens) √(2/π) Σ g / √(gᵀ Σ g), 0 where the gradient is. Equation T19."""
    least = _LEAST
    if isinstance(inputs, np.ndarray):
        sigma_g = g @ inputs
    else:
        # Σ is 1 on the diagonal and `inputs` elsewhere.
        sigma_g = (1 - inputs) * g + inputs * g.sum(1, keepdims=True)
    square = np.maximum((g * sigma_g).sum(1, keepdims=True), 0.0)
    if isinstance(inputs, np.ndarray):
        least = _LEAST * float(square.max())
    unit: Array = np.divide(sigma_g, np.sqrt(square), out=np.zeros_like(g), where=square > least)
    # E |z| of a standard normal: what the sign of a Gaussian has of the Gaussian itself.
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
    """Returns the response of hidden units φ(z), z with that variance and that correlation of two
    tokens.

    Averaged over points for gradients and points for inputs. mean: of the units, as a share of
    their root mean square; a norm within F may have taken it off.

    Equation T19.
    """
    units = _units(tokens, activation, variance, inputs, mean)
    g = normals(tokens, gradients, _GRADIENT)[:_GRADIENTS]
    count = len(units)
    signs = np.sign(g @ units.T)
    responses = signs @ units / count
    # A mean over finitely many inputs scatters about the one over all: its square has 1/count of
    # an input's own square, since a sign's square is 1.
    own = mean_product(units, units)
    gram = mean_product(responses, responses)
    unbiased = gram.plus(own, -1 / count).scaled(1 / (1 - 1 / count))
    return Response(unbiased, mean_product(g, responses))


@lru_cache(maxsize=64)
def _units(
    tokens: int, activation: Activation, variance: float, inputs: float, mean: float
) -> Array:
    """Returns (S, tokens) hidden units of mean square 1 and that mean. Equation T19."""
    z = math.sqrt(variance) * normals(tokens, max(0.0, inputs), _OWN)[:_INPUTS]
    units = activated(activation, z)
    if activation in GATED:
        units = units * normals(tokens, max(0.0, inputs), _GATE)[:_INPUTS]
    # Given the mean they are to have, by what stands between activation and matrix.
    units -= units.mean()
    variance_of_units = max(0.0, 1 - mean**2)
    units *= math.sqrt(variance_of_units / float(np.square(units).mean()))
    shifted: Array = units + mean
    return shifted


class Slopes(NamedTuple):
    """Holds means over what hidden units let through: slopes φ' of mean square 1, gradients b above
    them of variance 1.
    """

    slope: Alike
    """E φ'_s φ'_t."""
    own: Alike
    """Gram matrix of φ'_s φ'_s b_s: what a token's gradient makes of itself on its way down and up
    again.
    """
    all_: Alike
    """The Gram matrix of φ'_s Σ_t φ'_t b_t: what all tokens' gradients make of each token."""
    own_with_all: Alike
    sign: Alike
    """The Gram matrix of φ'_s times the response to gradients φ' b."""
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
    """Returns the means over slopes, given the correlation of inputs, that of gradients above the
    activation, and the variance of z. Equation T20.
    """
    sigma = math.sqrt(variance)
    z = sigma * normals(tokens, inputs, _OWN)
    if gate:
        partner = sigma * normals(tokens, inputs, _GATE)
        phi = gate_slope(activation, z, partner)
    else:
        phi = slope(activation, z)
    phi /= math.sqrt(float(np.square(phi).mean()))
    b = normals(tokens, gradients, _GRADIENT)
    # Below the activation a gradient has come through the slope, and a change that it made goes
    # through the same slope again.
    g = phi * b
    own = phi * g
    every = phi * g.sum(1, keepdims=True)
    sign = phi * _to_gaussian(g, inputs)
    return Slopes(
        slope=mean_product(phi, phi),
        own=mean_product(own, own),
        all_=mean_product(every, every),
        own_with_all=_both_ways(own, every),
        sign=mean_product(sign, sign),
        sign_with_own=_both_ways(sign, own),
        sign_with_all=_both_ways(sign, every),
        sign_with_gradient=mean_product(b, sign),
    )


def _both_ways(left: Array, right: Array) -> Alike:
    """Returns twice the product of two different values, which is what the Gram matrix of their sum
    has of it. Equation T20.
    """
    return mean_product(left, right).scaled(2.0)


def normals_by_place(gram: Array, seed: int) -> Array:
    """Returns (S, tokens) with that covariance. Equation T19."""
    found: Array = _whitened(len(gram), seed) @ powered(gram, 0.5)
    return found


@lru_cache(maxsize=16)
def _whitened(tokens: int, seed: int) -> Array:
    """Returns (S, tokens) whose covariance over the points is the identity. Equation T19."""
    drawn = normals(tokens, 0.0, seed)
    found: Array = drawn @ powered(mean_by_place(drawn, drawn).matrix, -0.5)
    return found


def mean_by_place(left: Array, right: Array) -> Whole:
    """Returns E left_s right_t of every pair of tokens; (S, tokens) each. Equation T19."""
    return Whole(left.T @ right / len(left))


def to_gaussian_by_place(inputs: Array, gradients: Array) -> Response:
    """Returns the response of Gaussian inputs, inputs and gradients with those Gram matrices.
    Equations T17 and T19.
    """
    g = normals_by_place(gradients, _GRADIENT)
    responses = _to_gaussian(g, inputs)
    return Response(mean_by_place(responses, responses), mean_by_place(g, responses))


def to_hidden_by_place(
    activation: Activation, z: Array, inputs: Array, mean: Array, gradients: Array
) -> Response:
    """Returns the response of hidden units φ(z), z with that Gram matrix, whose units have those
    squares (the diagonal of `inputs`) and means. Equations T17 and T19.
    """
    values = normals_by_place(z, _OWN)[:_INPUTS]
    units = activated(activation, values)
    if activation in GATED:
        units = units * normals_by_place(z, _GATE)[:_INPUTS]
    # Given the mean and the square that they are to have at each place.
    units = units - units.mean(0)
    variance = np.maximum(np.diag(inputs) - mean**2, 0.0)
    size = np.sqrt(variance / np.maximum(np.square(units).mean(0), _TINY))
    units = units * size + mean
    g = normals_by_place(gradients, _GRADIENT)[:_GRADIENTS]
    count = len(units)
    signs = np.sign(g @ units.T)
    responses = signs @ units / count
    # As in `to_hidden`: less the scatter of a mean over finitely many inputs.
    own = mean_by_place(units, units)
    gram = mean_by_place(responses, responses)
    unbiased = gram.plus(own, -1 / count).scaled(1 / (1 - 1 / count))
    return Response(unbiased, mean_by_place(g, responses))


_TINY = 1e-300
"""A square that stands in for 0 where it divides 0."""


class _Passed(NamedTuple):
    """Holds what hidden units let through of what moves before them, and what of it goes along
    b.
    """

    gram: Whole
    with_gradient: Whole
    """E b_t · what is let through at s."""
    single: Whole
    """E φ'_s φ'_t u_s u_t of single inputs, less the same of their mean response."""


def slope_squares(activation: Activation, *, gate: bool, z: Array) -> Array:
    """Returns (tokens,) E φ'² over the points that `through_units` takes. Equations T17 and T20."""
    squares: Array = np.square(_slopes_at(activation, gate, z)).mean(0)
    return squares


def _slopes_at(activation: Activation, gate: bool, z: Array) -> Array:
    """Returns (S, tokens) φ' at points of pre-activations with the Gram matrix z; of a gate, the
    slope by the gate. Equations T6 and T20.
    """
    own = normals_by_place(z, _OWN)
    if gate:
        return gate_slope(activation, own, normals_by_place(z, _GATE))
    return slope(activation, own)


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
    """Returns what hidden units let through of a change: those coefficients of the gradients below
    the activation, and `sign` times the response to their sign.

    gradients: the Gram matrix of b, above the slopes. inputs: that of an entry of what the matrix
    reads.

    Equations T17 and T20.
    """
    phi = _slopes_at(activation, gate, z)
    b = normals_by_place(gradients, _GRADIENT)
    # Below the activation a gradient has come through the slope, and the change that it made goes
    # through the same slope again.
    g = phi * b
    response = phi * _to_gaussian(g, inputs) if sign else np.zeros_like(g)
    moved = phi * (g @ coefficients) + sign * response
    # A single input adds u_s u_t times both slopes, of which the mean response is known already.
    every_input = Whole(mean_by_place(phi, phi).matrix * inputs)
    single = every_input.plus(mean_by_place(response, response), -1.0)
    return _Passed(mean_by_place(moved, moved), mean_by_place(b, sign * response), single)
