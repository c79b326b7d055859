"""What the sign of a matrix's gradient does to the matrix's inputs: E[sign(Σ_t g_t u_t) u_s].

An entry of the gradient is Σ_t g_t u_t over tokens, g the gradient at one output and u the value of one input. For one
output, whose g the sum over inputs has in common, this is E over an input: `response`. Over the inputs, which are many,
a matrix W with δW = -η sign G moves its output s by -η times as many responses, and by what single inputs scatter.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..kernels import GATED, Activation, activated, gate_slope, slope
from .nodes import Array, mean_product, normals
from .tokens import Alike

_GRADIENT, _OWN, _GATE = 1, 2, 3
"""Seeds of variables that are independent of one another."""
_GRADIENTS, _INPUTS = 1000, 1500
"""Points at most where both are summed over."""
_LEAST = 1e-12


class Response(NamedTuple):
    """For gradients and inputs of variance 1."""

    gram: Alike
    """Of responses at two tokens."""
    with_gradient: Alike
    """E g_t · response_s."""


@lru_cache(maxsize=4096)
def to_gaussian(tokens: int, inputs: float, gradients: float) -> Response:
    """Of Gaussian inputs, given both correlations: √(2/π) Σg / √(gᵀ Σ g), Σ the inputs' covariance."""
    g = normals(tokens, gradients, _GRADIENT)
    found = _to_gaussian(g, inputs)
    return Response(mean_product(found, found), mean_product(g, found))


def _to_gaussian(g: Array, inputs: float) -> Array:
    covariance = (1 - inputs) * g + inputs * g.sum(1, keepdims=True)
    square = np.maximum((g * covariance).sum(1, keepdims=True), 0.0)
    unit: Array = np.divide(covariance, np.sqrt(square), out=np.zeros_like(g), where=square > _LEAST)
    return math.sqrt(2 / math.pi) * unit


@lru_cache(maxsize=4096)
def to_hidden(
    tokens: int, activation: Activation, variance: float, inputs: float, gradients: float, mean: float
) -> Response:
    """Of hidden units φ(z), z with that correlation of tokens and that variance.

    mean: what the units have for a mean, of their root mean square; a norm within F may have taken it off.

    By points for gradients and points for inputs: as many inputs as there are, a real matrix would have.
    """
    units = _units(tokens, activation, variance, inputs, mean)
    g = normals(tokens, gradients, _GRADIENT)[:_GRADIENTS]
    count = len(units)
    found = np.sign(g @ units.T) @ units / count
    # A mean over finitely many inputs scatters about the one over all.
    own, gram = mean_product(units, units), mean_product(found, found)
    return Response(gram.plus(own, -1 / count).scaled(1 / (1 - 1 / count)), mean_product(g, found))


@lru_cache(maxsize=64)
def _units(tokens: int, activation: Activation, variance: float, inputs: float, mean: float) -> Array:
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
    """Means over what hidden units let through: slopes φ' of mean square 1, gradients b above them of variance 1."""

    slope: Alike
    """E φ'_s φ'_t."""
    own: Alike
    """Gram matrix of φ'_s φ'_s b_s: what a token's gradient makes of itself on its way down and up again."""
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
def slopes(tokens: int, activation: Activation, gate: bool, variance: float, inputs: float, gradients: float) -> Slopes:
    """Given the correlation of inputs, that of gradients above the activation, and the variance of z."""
    z = normals(tokens, inputs, _OWN)
    other = normals(tokens, inputs, _GATE)
    sigma = math.sqrt(variance)
    found = gate_slope(activation, sigma * z, sigma * other) if gate else slope(activation, sigma * z)
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
