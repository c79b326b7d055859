"""Matrices over the tokens of a sequence: Gram matrices of what tokens are, and coefficients of sums over tokens.

A Gram matrix of values is E⟨x_s, x_t⟩ / d, one of gradients E⟨g_s, g_t⟩. As coefficients, value s has the sum over
tokens t of entry (t, s) times a vector of token t. Where all places are alike two numbers say it (`Alike`), and such
matrices commute; where each has moments of its own, it is the whole matrix (`Whole`).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..mixing import Array, LinearMap, Products
from ..places import ByPlace, Factors, GradientMap, whole_of


class Alike(NamedTuple):
    """A symmetric matrix over n tokens: `one` on its diagonal, `two` everywhere else."""

    one: float
    two: float

    def plus(self, other: "Tokens", factor: float = 1.0) -> "Tokens":
        if isinstance(other, Whole):
            return other.scaled(factor).plus(self)
        return Alike(self.one + factor * other.one, self.two + factor * other.two)

    def scaled(self, factor: float) -> "Alike":
        return Alike(self.one * factor, self.two * factor)

    def values(self, tokens: int) -> tuple[float, float]:
        """Its eigenvalues: of what all tokens share, and of what they do not."""
        return self.one + (tokens - 1) * self.two, self.one - self.two


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """Any matrix over n tokens."""

    matrix: Array

    @property
    def one(self) -> float:
        """The mean of its diagonal."""
        return float(np.trace(self.matrix)) / len(self.matrix)

    @property
    def two(self) -> float:
        """The mean of all other entries."""
        n = len(self.matrix)
        return (float(self.matrix.sum()) / n - self.one) / (n - 1) if n > 1 else 0.0

    def plus(self, other: "Tokens", factor: float = 1.0) -> "Whole":
        return Whole(self.matrix + factor * whole(other, len(self.matrix)))

    def scaled(self, factor: float) -> "Whole":
        return Whole(self.matrix * factor)


Tokens = Alike | Whole
NONE = Alike(0.0, 0.0)
_SMALLEST = 1e-9
"""Of the largest eigenvalue: a smaller one is rounding of 0."""


def whole(matrix: Tokens, tokens: int) -> Array:
    """All of its entries."""
    if isinstance(matrix, Whole):
        return matrix.matrix
    return np.full((tokens, tokens), matrix.two) + (matrix.one - matrix.two) * np.eye(tokens)


def over_tokens(products: Products) -> Tokens:
    """The Gram matrix with these moments."""
    if not isinstance(products.one, np.ndarray):
        return Alike(products.one, products.two)
    return Whole(whole_of(products))


def of_values(shared: float, apart: float, tokens: int) -> Alike:
    """The matrix with these eigenvalues; of a single token there is only the first."""
    if tokens == 1:
        return Alike(shared, 0.0)
    two = (shared - apart) / tokens
    return Alike(two + apart, two)


def product(left: Tokens, right: Tokens, tokens: int) -> Tokens:
    if isinstance(left, Whole) or isinstance(right, Whole):
        return Whole(whole(left, tokens) @ whole(right, tokens))
    (a, b), (c, d) = left.values(tokens), right.values(tokens)
    return of_values(a * c, b * d, tokens)


def sandwich(coefficients: Tokens, gram: Tokens, tokens: int) -> Tokens:
    """The Gram matrix of sums with these coefficients: Qᵀ K Q."""
    if isinstance(coefficients, Whole):
        return Whole(coefficients.matrix.T @ whole(gram, tokens) @ coefficients.matrix)
    return product(product(coefficients, gram, tokens), coefficients, tokens)


def solved(gram: Tokens, covariance: Tokens, tokens: int) -> Tokens:
    """The coefficients Q of the best linear guess, K Q = C, 0 where K is."""
    if isinstance(gram, Whole) or isinstance(covariance, Whole):
        inverse = np.linalg.pinv(whole(gram, tokens), rcond=_SMALLEST, hermitian=True)
        return Whole(inverse @ whole(covariance, tokens))
    known, wanted = gram.values(tokens), covariance.values(tokens)
    least = _SMALLEST * max(abs(value) for value in known)
    shared, apart = (c / k if k > least else 0.0 for k, c in zip(known, wanted, strict=True))
    return of_values(shared, apart, tokens)


def square_root(gram: Tokens, tokens: int) -> Tokens:
    if isinstance(gram, Whole):
        return Whole(powered(gram.matrix, 0.5))
    shared, apart = (math.sqrt(max(0.0, value)) for value in gram.values(tokens))
    return of_values(shared, apart, tokens)


def powered(gram: Array, power: float) -> Array:
    """A power of a Gram matrix, 0 where the matrix is."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > _SMALLEST * abs(values).max(initial=0.0)
    found: Array = (vectors * np.power(values, power, out=np.zeros_like(values), where=kept)) @ vectors.T
    return found


def polar(inputs: Tokens, gradient: Tokens, tokens: int) -> Tokens:
    """Of G = Γ Uᵀ, Γᵀ Γ and Uᵀ U given: the coefficients of Γ in (G Gᵀ)^(-1/2) G U, B^½ (B^½ K B^½)^(-½) B^½."""
    size = square_root(inputs, tokens)
    if isinstance(size, Whole):
        between = powered(size.matrix @ whole(gradient, tokens) @ size.matrix, -0.5)
        return Whole(size.matrix @ between @ size.matrix)
    return solved(square_root(gradient, tokens), size, tokens)


def trace(left: Tokens, right: Tokens, tokens: int) -> float:
    """Σ_st left_st right_st."""
    if isinstance(left, Whole) or isinstance(right, Whole):
        return float((whole(left, tokens) * whole(right, tokens)).sum())
    return tokens * (left.one * right.one + (tokens - 1) * left.two * right.two)


def forward(back: GradientMap, matrix: Tokens, tokens: int) -> Tokens:
    """Through the adjoint of a map of gradients: what the same map, forward, makes of Gram matrices and coefficients.

    ⟨g, J v⟩ and ⟨Jᵀ g, v⟩ have one second moment, so that Σ_st of the products of both Gram matrices is the same on
    either side.
    """
    if isinstance(back, ByPlace | Factors):
        return Whole(back.forward(whole(matrix, tokens)))
    assert isinstance(matrix, Alike)
    return mapped(adjoint(back, tokens), matrix)


def adjoint(back: LinearMap, tokens: int) -> LinearMap:
    one_one, one_two, two_one, two_two, apart = back
    others = tokens - 1
    return LinearMap(one_one, others * two_one, one_two / others if others else 0.0, two_two, apart)


def mapped(map_: LinearMap, matrix: Alike) -> Alike:
    one, two = matrix
    return Alike(map_.one_one * one + map_.one_two * two, map_.two_one * one + map_.two_two * two)
