"""Matrices over the tokens of a sequence that treat all tokens alike, which is all that means over draws can tell."""

import math
from typing import NamedTuple

from ..products import Linear, Products


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


def forward(back: Linear, tokens: int) -> Linear:
    """The adjoint of a map of gradients: what the same map, forward, makes of Gram matrices and of coefficients.

    ⟨g, J v⟩ and ⟨Jᵀ g, v⟩ have one second moment, so that Σ_st of the products of both Gram matrices is the same on
    either side.
    """
    one_one, one_two, two_one, two_two, apart = back
    others = tokens - 1
    return Linear(one_one, others * two_one, one_two / others if others else 0.0, two_two, apart)


def mapped(map_: Linear, matrix: Alike) -> Alike:
    one, two = matrix
    return Alike(map_.one_one * one + map_.one_two * two, map_.two_one * one + map_.two_two * two)
