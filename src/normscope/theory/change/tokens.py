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
    """Holds a symmetric matrix over n tokens: `one` on its diagonal, `two` everywhere else."""

    one: float
    two: float

    def plus(self, other: "Tokens", factor: float = 1.0) -> "Tokens":
        """Returns the sum with `factor` times a matrix. Equation T20."""
        if isinstance(other, Whole):
            return other.scaled(factor).plus(self)
        return Alike(self.one + factor * other.one, self.two + factor * other.two)

    def scaled(self, factor: Entry) -> "Alike":
        """Returns a multiple. Equation T20."""
        return Alike(self.one * factor, self.two * factor)

    def values(self, tokens: int) -> tuple[float, float]:
        """Returns the eigenvalues one + (n − 1) two, of what all tokens share, and one − two, of
        what they do not.

        Of 4 tokens with 1 on the diagonal and 0.5 elsewhere these are 2.5 and 0.5.

        Equation T20.
        """
        return self.one + (tokens - 1) * self.two, self.one - self.two


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """Any matrix over n tokens."""

    matrix: Array

    @property
    def one(self) -> float:
        """Returns the mean of the diagonal. Equation T20."""
        return float(np.trace(self.matrix)) / len(self.matrix)

    @property
    def two(self) -> float:
        """Returns the mean of all entries off the diagonal. Equation T20."""
        n = len(self.matrix)
        return (float(self.matrix.sum()) / n - self.one) / (n - 1) if n > 1 else 0.0

    def plus(self, other: "Tokens", factor: float = 1.0) -> "Whole":
        """Returns the sum with `factor` times a matrix. Equation T20."""
        return Whole(self.matrix + factor * whole(other, len(self.matrix)))

    def scaled(self, factor: Entry) -> "Whole":
        """Returns a multiple. Equation T20."""
        return Whole(self.matrix * factor)


Tokens = Alike | Whole
NONE = Alike(0.0, 0.0)
_SMALLEST = 1e-9
"""A share of the largest eigenvalue: a smaller one is rounding of 0."""


def whole(matrix: Tokens, tokens: int) -> Array:
    """Returns all entries of a matrix. Equation T20."""
    if isinstance(matrix, Whole):
        return matrix.matrix
    return np.full((tokens, tokens), matrix.two) + (matrix.one - matrix.two) * np.eye(tokens)


def over_tokens(products: Products) -> Tokens:
    """Returns the Gram matrix with these moments. Equation T20."""
    if not isinstance(products.one, np.ndarray):
        return Alike(products.one, products.two)
    return Whole(whole_of(products))


def of_values(shared: float, apart: float, tokens: int) -> Alike:
    """Returns the matrix with these eigenvalues; of a single token there is only the first.
    Equation T20.
    """
    if tokens == 1:
        return Alike(shared, 0.0)
    # one + (n − 1) two = shared, and one − two = apart.
    two = (shared - apart) / tokens
    return Alike(two + apart, two)


def product(left: Tokens, right: Tokens, tokens: int) -> Tokens:
    """Returns the product of two matrices. Those of tokens that are alike commute, and multiply by
    their eigenvalues. Equation T20.
    """
    if isinstance(left, Whole) or isinstance(right, Whole):
        return Whole(whole(left, tokens) @ whole(right, tokens))
    left_shared, left_apart = left.values(tokens)
    right_shared, right_apart = right.values(tokens)
    return of_values(left_shared * right_shared, left_apart * right_apart, tokens)


def sandwich(coefficients: Tokens, gram: Tokens, tokens: int) -> Tokens:
    """Returns Qᵀ K Q: the Gram matrix of sums with the coefficients Q of vectors whose Gram matrix
    is K. Equation T20.
    """
    if isinstance(coefficients, Whole):
        return Whole(coefficients.matrix.T @ whole(gram, tokens) @ coefficients.matrix)
    return product(product(coefficients, gram, tokens), coefficients, tokens)


def solved(gram: Tokens, covariance: Tokens, tokens: int) -> Tokens:
    """Returns the coefficients Q of the best linear guess, K Q = C, 0 where K is. Equation T19."""
    if isinstance(gram, Whole) or isinstance(covariance, Whole):
        # What does not vary says nothing of anything.
        inverse = np.linalg.pinv(whole(gram, tokens), rcond=_SMALLEST, hermitian=True)
        return Whole(inverse @ whole(covariance, tokens))
    known = gram.values(tokens)
    wanted = covariance.values(tokens)
    # What does not vary says nothing: pinv does the same with small eigenvalues.
    least = _SMALLEST * max(abs(value) for value in known)
    shared, apart = (c / k if k > least else 0.0 for k, c in zip(known, wanted, strict=True))
    return of_values(shared, apart, tokens)


def square_root(gram: Tokens, tokens: int) -> Tokens:
    """Returns K^½, of negative eigenvalues 0. Equation T19."""
    if isinstance(gram, Whole):
        return Whole(powered(gram.matrix, 0.5))
    shared, apart = gram.values(tokens)
    return of_values(math.sqrt(max(0.0, shared)), math.sqrt(max(0.0, apart)), tokens)


def powered(gram: Array, power: float) -> Array:
    """Returns a power of a Gram matrix, 0 where the matrix is. Equation T19."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > _SMALLEST * abs(values).max(initial=0.0)
    powers = np.power(values, power, out=np.zeros_like(values), where=kept)
    found: Array = (vectors * powers) @ vectors.T
    return found


def polar(inputs: Tokens, gradient: Tokens, tokens: int) -> Tokens:
    """Returns the coefficients of Γ in (G Gᵀ)^(−1/2) G U, for G = Γ Uᵀ: B^½ (B^½ K B^½)^(−½) B^½.

    inputs: B = Uᵀ U. gradient: K = Γᵀ Γ.

    Equation T19.
    """
    root_of_b = square_root(inputs, tokens)
    if isinstance(root_of_b, Whole):
        b = root_of_b.matrix
        between = powered(b @ whole(gradient, tokens) @ b, -0.5)
        return Whole(b @ between @ b)
    # Matrices of tokens that are alike commute, so that it is K^(−½) B^½.
    return solved(square_root(gradient, tokens), root_of_b, tokens)


def trace(left: Tokens, right: Tokens, tokens: int) -> float:
    """Returns Σ_st left_st right_st. Equation T20."""
    if isinstance(left, Whole) or isinstance(right, Whole):
        return float((whole(left, tokens) * whole(right, tokens)).sum())
    return tokens * (left.one * right.one + (tokens - 1) * left.two * right.two)


def forward(back: GradientMap, matrix: Tokens, tokens: int) -> Tokens:
    """Returns what a map makes of Gram matrices and of coefficients on the way forward: the adjoint
    of its map of gradients.

    ⟨g, J v⟩ and ⟨Jᵀ g, v⟩ have one second moment, so that Σ_st of the products of both Gram
    matrices is the same on either side.

    Equation T20.
    """
    if isinstance(back, ByPlace | Factors):
        return Whole(back.forward(whole(matrix, tokens)))
    assert isinstance(matrix, Alike)
    return mapped(adjoint(back, tokens), matrix)


def adjoint(back: LinearMap, tokens: int) -> LinearMap:
    """Returns the adjoint of a map: `two` stands for n − 1 entries, so that what `two` gives `one`
    is n − 1 times what `one` gives `two`. Equation T20.
    """
    other_tokens = tokens - 1
    two_one = back.one_two / other_tokens if other_tokens else 0.0
    return LinearMap(
        one_one=back.one_one,
        one_two=other_tokens * back.two_one,
        two_one=two_one,
        two_two=back.two_two,
        apart=back.apart,
    )


def mapped(map_: LinearMap, matrix: Alike) -> Alike:
    """Returns what a map makes of a matrix. Equation T20."""
    one, two = matrix
    return Alike(map_.one_one * one + map_.one_two * two, map_.two_one * one + map_.two_two * two)


class _Ledger:
    """Keeps what every part of a stack's values has moved: along the gradients at all inputs, and a
    rest without covariance with them.

    Of tokens that are all alike: matrices over them by their eigenvalues, of what all share and of
    what they do not. Changes of either kind stay so, on their way forward and back.
    """

    def __init__(
        self, atoms: Atoms, tokens: int, back: Sequence[Array], gradients: Sequence[Tokens]
    ) -> None:
        """Takes, of the values that sub-layers read and of the output, the coefficients of
        gradients and the gradients there.
        """
        self.tokens = tokens
        self.width = atoms.width
        self._back = np.zeros((len(back), atoms.count))
        # Each value read has coefficients of the parts before it.
        for row, read in zip(self._back, back, strict=True):
            row[: len(read)] = read
        self._sizes = np.array([one.values(tokens) for one in gradients if isinstance(one, Alike)])
        self._coefficients = np.zeros((atoms.count, 2))
        self._rests = np.zeros((atoms.count, 2))

    def put(self, atom: int, coefficients: Tokens, rest: Tokens) -> None:
        """Writes what a part has moved. Equation T20."""
        assert isinstance(coefficients, Alike)
        assert isinstance(rest, Alike)
        self._coefficients[atom] = coefficients.values(self.tokens)
        self._rests[atom] = rest

    def along(self, row: Array) -> Array:
        """Returns (inputs, 2) the coefficients that the change of a value has of the gradients at
        all inputs, which are independent of one another.

        row: the value's coefficients of parts.

        Equation T20.
        """
        size = len(row)
        found: Array = self._back[:, :size] @ (row[:, None] * self._coefficients[:size])
        return found

    def at(self, along: Array, read: int) -> Tokens:
        """Returns the coefficients of the gradient at one input. Equation T20."""
        shared, apart = along[read]
        return of_values(float(shared), float(apart), self.tokens)

    def gram(self, row: Array, along: Array) -> Tokens:
        """Returns E⟨δx_s, δx_t⟩ / d of the value. Equation T20."""
        # Gradients at different inputs are independent: their squares add up, and so do rests'.
        shared, apart = (along**2 * self._sizes).sum(0) / self.width
        one, two = row**2 @ self._rests[: len(row)]
        along_gradients = of_values(float(shared), float(apart), self.tokens)
        return along_gradients.plus(Alike(float(one), float(two)))


class _LedgerByPlace:
    """Keeps the same where each token has a place of its own: whole matrices over tokens."""

    def __init__(
        self, atoms: Atoms, tokens: int, back: Sequence[Array], gradients: Sequence[Tokens]
    ) -> None:
        self.tokens = tokens
        self.width = atoms.width
        self._back = np.zeros((tokens, len(back), atoms.count))
        for number, read in enumerate(back):
            self._back[:, number, : len(read)] = read.T
        self._gradients = np.array([whole(one, tokens) for one in gradients])
        self._coefficients = np.zeros((tokens, atoms.count, tokens))
        self._rests = np.zeros((atoms.count, tokens, tokens))

    def put(self, atom: int, coefficients: Tokens, rest: Tokens) -> None:
        """Writes what a part has moved. Equation T20."""
        self._coefficients[:, atom] = whole(coefficients, self.tokens)
        self._rests[atom] = whole(rest, self.tokens)

    def along(self, row: Array) -> Array:
        """Returns (inputs, tokens, tokens) the coefficients of the gradients at all inputs.
        Equation T20.
        """
        size = len(row)
        found: Array = self._back[:, :, :size] @ (row * self._coefficients[:, :size])
        return found.transpose(1, 0, 2)

    def at(self, along: Array, read: int) -> Tokens:
        """Returns the coefficients of the gradient at one input. Equation T20."""
        return Whole(along[read])

    def gram(self, row: Array, along: Array) -> Tokens:
        """Returns E⟨δx_s, δx_t⟩ / d of the value. Equation T20."""
        # Qᵀ K Q of the gradient at every input.
        along_gradients = (along.transpose(0, 2, 1) @ self._gradients @ along).sum(0) / self.width
        pairs = row[:, :, None] * row[:, None, :]
        rests = (pairs * self._rests[: len(row)]).sum(0)
        return Whole(along_gradients + rests)


def ledger_of(
    atoms: Atoms, tokens: int, back: Sequence[Array], gradients: Sequence[Tokens]
) -> _Ledger | _LedgerByPlace:
    """Returns the ledger that the stack's tokens take. Equation T20."""
    kind = _Ledger if atoms.places is None else _LedgerByPlace
    return kind(atoms, tokens, back, gradients)
