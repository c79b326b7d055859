"""What every part of a stack's values has moved: along the gradients at all inputs, and beside them."""

from collections.abc import Sequence

import numpy as np

from ..mixing import Array
from ..moments import Atoms, Coefficients
from .rules import MatrixStep
from .tokens import Alike, Tokens, Whole, of_values, whole


class Ledger:
    """Of tokens that are all alike: matrices over them by their eigenvalues, of what all share and of what they do not.

    Changes of either kind stay so, on their way forward and back.
    """

    def __init__(self, atoms: Atoms, tokens: int, back: Sequence[Coefficients], gradients: Sequence[Tokens]) -> None:
        """Of the values that sub-layers read, and of the output: coefficients of gradients, and gradients there."""
        self.tokens, self.width = tokens, atoms.width
        self._back = np.zeros((len(back), atoms.count))
        for row, read in zip(self._back, back, strict=True):
            row[: len(read)] = read
        self._sizes = np.array([one.values(tokens) for one in gradients if isinstance(one, Alike)])
        self._coefficients = np.zeros((atoms.count, 2))
        self._rests = np.zeros((atoms.count, 2))

    def put(self, atom: int, step: MatrixStep) -> None:
        """Writes what a part has moved."""
        coefficients, rest = step
        assert isinstance(coefficients, Alike)
        assert isinstance(rest, Alike)
        self._coefficients[atom], self._rests[atom] = coefficients.values(self.tokens), rest

    def along(self, row: Coefficients) -> Array:
        """(inputs, 2): the coefficients of the gradients at all inputs, which are independent of one another, that
        the change of a value with those coefficients has."""
        size = len(row)
        found: Array = self._back[:, :size] @ (row[:, None] * self._coefficients[:size])
        return found

    def at(self, along: Array, read: int) -> Tokens:
        """Of the gradient at one input."""
        shared, apart = along[read]
        return of_values(float(shared), float(apart), self.tokens)

    def gram(self, row: Coefficients, along: Array) -> Tokens:
        """E⟨δx_s, δx_t⟩ / d of the value."""
        shared, apart = (along**2 * self._sizes).sum(0) / self.width
        one, two = row**2 @ self._rests[: len(row)]
        return of_values(float(shared), float(apart), self.tokens).plus(Alike(float(one), float(two)))


class LedgerByPlace:
    """The same where each token has a place of its own: whole matrices over tokens."""

    def __init__(self, atoms: Atoms, tokens: int, back: Sequence[Coefficients], gradients: Sequence[Tokens]) -> None:
        self.tokens, self.width = tokens, atoms.width
        self._back = np.zeros((tokens, len(back), atoms.count))
        for number, read in enumerate(back):
            self._back[:, number, : len(read)] = read.T
        self._gradients = np.array([whole(one, tokens) for one in gradients])
        self._coefficients = np.zeros((tokens, atoms.count, tokens))
        self._rests = np.zeros((atoms.count, tokens, tokens))

    def put(self, atom: int, step: MatrixStep) -> None:
        self._coefficients[:, atom] = whole(step.coefficients, self.tokens)
        self._rests[atom] = whole(step.rest, self.tokens)

    def along(self, row: Coefficients) -> Array:
        """(inputs, tokens, tokens)"""
        size = len(row)
        found: Array = self._back[:, :, :size] @ (row * self._coefficients[:, :size])
        return found.transpose(1, 0, 2)

    def at(self, along: Array, read: int) -> Tokens:
        return Whole(along[read])

    def gram(self, row: Coefficients, along: Array) -> Tokens:
        moved = (along.transpose(0, 2, 1) @ self._gradients @ along).sum(0) / self.width
        beside = (row[:, :, None] * row[:, None, :] * self._rests[: len(row)]).sum(0)
        return Whole(moved + beside)
