"""Matrices over the tokens of a sequence: Gram matrices of what tokens are, and coefficients of
sums over tokens.

A Gram matrix of values is E⟨x_s, x_t⟩ / d, one of gradients E⟨g_s, g_t⟩. As coefficients, value s
has the sum over tokens t of entry (t, s) times a vector of token t. Where all places are alike two
numbers say it (`Alike`), and such matrices commute; where each has moments of its own, it is the
whole matrix (`Whole`).

The equations are T19 and T20 of docs/theory.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..mixing import Array, Entry, LinearMap, Products
from ..moments import Atoms
from ..places import ByPlace, Factors, GradientMap, whole_of


class Alike(NamedTuple):
    """A symmetric matrix over n tokens: `one` on its diagonal, `two` everywhere else."""

    one: float
    two: float

    def plus(self, other: "Tokens", factor: float = 1.0) -> "Tokens":
        if isinstance(other, Whole):
            return other.scaled(factor).plus(self)
        return Alike(self.one + factor * other.one, self.two + factor * other.two)

    def scaled(self, factor: Entry) -> "Alike":
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

    def scaled(self, factor: Entry) -> "Whole":
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
    found: Array = (
        vectors * np.power(values, power, out=np.zeros_like(values), where=kept)
    ) @ vectors.T
    return found


def polar(inputs: Tokens, gradient: Tokens, tokens: int) -> Tokens:
    """Of G = Γ Uᵀ, Γᵀ Γ and Uᵀ U given: the coefficients of Γ in (G Gᵀ)^(-1/2) G U, B^½ (B^½ K
    B^½)^(-½) B^½.
    """
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
    """Through the adjoint of a map of gradients: what the same map, forward, makes of Gram matrices
    and coefficients.

    ⟨g, J v⟩ and ⟨Jᵀ g, v⟩ have one second moment, so that Σ_st of the products of both Gram
    matrices is the same on either side.
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


class _Ledger:
    """What every part of a stack's values has moved: along the gradients at all inputs, and beside
    them.

    Of tokens that are all alike: matrices over them by their eigenvalues, of what all share and of
    what they do not.

    Changes of either kind stay so, on their way forward and back.
    """

    def __init__(
        self, atoms: Atoms, tokens: int, back: Sequence[Array], gradients: Sequence[Tokens]
    ) -> None:
        """Of the values that sub-layers read, and of the output: coefficients of gradients, and
        gradients there.
        """
        self.tokens, self.width = tokens, atoms.width
        self._back = np.zeros((len(back), atoms.count))
        for row, read in zip(self._back, back, strict=True):
            row[: len(read)] = read
        self._sizes = np.array([one.values(tokens) for one in gradients if isinstance(one, Alike)])
        self._coefficients = np.zeros((atoms.count, 2))
        self._rests = np.zeros((atoms.count, 2))

    def put(self, atom: int, coefficients: Tokens, rest: Tokens) -> None:
        """Writes what a part has moved."""
        assert isinstance(coefficients, Alike)
        assert isinstance(rest, Alike)
        self._coefficients[atom], self._rests[atom] = coefficients.values(self.tokens), rest

    def along(self, row: Array) -> Array:
        """(inputs, 2): the coefficients of the gradients at all inputs, which are independent of
        one another, that the change of a value with those coefficients has."""
        size = len(row)
        found: Array = self._back[:, :size] @ (row[:, None] * self._coefficients[:size])
        return found

    def at(self, along: Array, read: int) -> Tokens:
        """Of the gradient at one input."""
        shared, apart = along[read]
        return of_values(float(shared), float(apart), self.tokens)

    def gram(self, row: Array, along: Array) -> Tokens:
        """E⟨δx_s, δx_t⟩ / d of the value."""
        shared, apart = (along**2 * self._sizes).sum(0) / self.width
        one, two = row**2 @ self._rests[: len(row)]
        return of_values(float(shared), float(apart), self.tokens).plus(
            Alike(float(one), float(two))
        )


class _LedgerByPlace:
    """The same where each token has a place of its own: whole matrices over tokens."""

    def __init__(
        self, atoms: Atoms, tokens: int, back: Sequence[Array], gradients: Sequence[Tokens]
    ) -> None:
        self.tokens, self.width = tokens, atoms.width
        self._back = np.zeros((tokens, len(back), atoms.count))
        for number, read in enumerate(back):
            self._back[:, number, : len(read)] = read.T
        self._gradients = np.array([whole(one, tokens) for one in gradients])
        self._coefficients = np.zeros((tokens, atoms.count, tokens))
        self._rests = np.zeros((atoms.count, tokens, tokens))

    def put(self, atom: int, coefficients: Tokens, rest: Tokens) -> None:
        self._coefficients[:, atom], self._rests[atom] = (
            whole(coefficients, self.tokens),
            whole(rest, self.tokens),
        )

    def along(self, row: Array) -> Array:
        """(inputs, tokens, tokens)"""
        size = len(row)
        found: Array = self._back[:, :, :size] @ (row * self._coefficients[:, :size])
        return found.transpose(1, 0, 2)

    def at(self, along: Array, read: int) -> Tokens:
        return Whole(along[read])

    def gram(self, row: Array, along: Array) -> Tokens:
        moved = (along.transpose(0, 2, 1) @ self._gradients @ along).sum(0) / self.width
        beside = (row[:, :, None] * row[:, None, :] * self._rests[: len(row)]).sum(0)
        return Whole(moved + beside)


def ledger_of(
    atoms: Atoms, tokens: int, back: Sequence[Array], gradients: Sequence[Tokens]
) -> _Ledger | _LedgerByPlace:
    """The one that the stack's tokens take."""
    return (_Ledger if atoms.places is None else _LedgerByPlace)(atoms, tokens, back, gradients)
