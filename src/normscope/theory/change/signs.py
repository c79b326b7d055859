"""What the sign of a matrix's gradient does to the matrix's inputs: E[sign(Σ_t g_t u_t) u_s].

An entry of the gradient is Σ_t g_t u_t over tokens, g the gradient at one output and u the value of one input. For one
output, whose g the sum over inputs has in common, this is E over an input: `response`. Over the inputs, which are many,
a matrix W with δW = -η sign G moves its output s by -η times as many responses, and by what single inputs scatter.

Expectations over Gaussians that the tokens of a sequence share in part are means over fixed points. There is one set of
points for a number of tokens, whatever the correlation, so that curves over depth are smooth and the same every time. A
mean over points is one over tokens too: its error is below a hundredth.

`Alike` is a matrix over the tokens of a sequence that treats all tokens alike: means over draws can tell no more.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..kernels import GATED, Activation, Array, activated, gate_slope, slope
from ..mixing import LinearMap, Products


class Alike(NamedTuple):
    """A symmetric matrix over n tokens: `one` on its diagonal, `two` everywhere else.

    A Gram matrix of values is E⟨x_s, x_t⟩ / d, one of gradients E⟨g_s, g_t⟩. As coefficients, value s has the sum over
    tokens t of entry (t, s) times a vector of token t.
    """

    one: float
    two: float

    def plus(self, other: "Alike", factor: float = 1.0) -> "Alike":
        return Alike(self.one + factor * other.one, self.two + factor * other.two)

    def scaled(self, factor: float) -> "Alike":
        return Alike(self.one * factor, self.two * factor)

    def values(self, tokens: int) -> tuple[float, float]:
        """Its eigenvalues: of what all tokens share, and of what they do not."""
        return self.one + (tokens - 1) * self.two, self.one - self.two


NONE = Alike(0.0, 0.0)
_SMALLEST = 1e-9
"""Of the larger eigenvalue: a smaller one is rounding of 0."""


def alike(products: Products) -> Alike:
    return Alike(products.one, products.two)


def of_values(shared: float, apart: float, tokens: int) -> Alike:
    """The matrix with these eigenvalues; of a single token there is only the first."""
    if tokens == 1:
        return Alike(shared, 0.0)
    two = (shared - apart) / tokens
    return Alike(two + apart, two)


def product(left: Alike, right: Alike, tokens: int) -> Alike:
    """Matrices of this kind commute."""
    (a, b), (c, d) = left.values(tokens), right.values(tokens)
    return of_values(a * c, b * d, tokens)


def sandwich(coefficients: Alike, gram: Alike, tokens: int) -> Alike:
    """The Gram matrix of sums with these coefficients: Qᵀ K Q."""
    return product(product(coefficients, coefficients, tokens), gram, tokens)


def solved(gram: Alike, covariance: Alike, tokens: int) -> Alike:
    """The coefficients Q of the best linear guess, K Q = C, 0 where K is."""
    known, wanted = gram.values(tokens), covariance.values(tokens)
    least = _SMALLEST * max(abs(value) for value in known)
    shared, apart = (c / k if k > least else 0.0 for k, c in zip(known, wanted, strict=True))
    return of_values(shared, apart, tokens)


def square_root(gram: Alike, tokens: int) -> Alike:
    shared, apart = (math.sqrt(max(0.0, value)) for value in gram.values(tokens))
    return of_values(shared, apart, tokens)


def trace(left: Alike, right: Alike, tokens: int) -> float:
    """Σ_st left_st right_st."""
    return tokens * (left.one * right.one + (tokens - 1) * left.two * right.two)


def forward(back: LinearMap, tokens: int) -> LinearMap:
    """The adjoint of a map of gradients: what the same map, forward, makes of Gram matrices and of coefficients.

    ⟨g, J v⟩ and ⟨Jᵀ g, v⟩ have one second moment, so that Σ_st of the products of both Gram matrices is the same on
    either side.
    """
    one_one, one_two, two_one, two_two, apart = back
    others = tokens - 1
    return LinearMap(one_one, others * two_one, one_two / others if others else 0.0, two_two, apart)


def mapped(map_: LinearMap, matrix: Alike) -> Alike:
    one, two = matrix
    return Alike(map_.one_one * one + map_.one_two * two, map_.two_one * one + map_.two_two * two)


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
    """(S, tokens) of variance 1 and that correlation of two tokens; another seed, another variable."""
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
