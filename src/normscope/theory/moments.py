"""Mean-field values of a formula: sums of parts that are independent at initialisation.

Whatever a placement does between sub-layers is linear in the embedding and in the outputs of the sub-layers before it,
once a norm is read as a division by its standard deviation (which concentrates as the width grows). Each of these
parts is an *atom*, drawn independently of the others because every F ends in a matrix of its own. So a value is one
coefficient an atom, and two numbers an atom say all that is needed:

    q = E‖a_i‖² / d     and     p = E⟨a_i, a_j⟩ / d,  i ≠ j,

for the vectors a_i of single tokens. The same coefficients carry gradients back (`backward.py`).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..placement.operations import mix, unit

Coefficients = NDArray[np.float64]


class Atoms:
    """Second moments of all parts of a stack's values so far, in the order in which they came to be."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.count = 0
        self._q, self._p = np.empty(64), np.empty(64)
        self.constant: list[int] = []
        """Parts that are the same in every feature, which LayerNorm takes off."""

    def add(self, q: float, p: float, *, centred: bool = True) -> int:
        """A new part; its index. `centred` is False for one that is the same in every feature."""
        if self.count == len(self._q):
            self._q, self._p = (np.resize(old, 2 * len(old)) for old in (self._q, self._p))
        self._q[self.count], self._p[self.count] = q, p
        if not centred:
            self.constant.append(self.count)
        self.count += 1
        return self.count - 1

    @property
    def q(self) -> Coefficients:
        return self._q[: self.count]

    @property
    def p(self) -> Coefficients:
        return self._p[: self.count]


class Moments:
    """A value of the formula: one coefficient for each atom that existed when it was made, and its two moments."""

    __slots__ = ("_moments", "atom", "atoms", "coefficients", "normed")

    def __init__(
        self,
        atoms: Atoms,
        coefficients: Coefficients,
        moments: tuple[float, float] | None = None,
        *,
        atom: int | None = None,
        normed: bool = False,
    ) -> None:
        self.atoms, self.coefficients, self.atom, self.normed = atoms, coefficients, atom, normed
        # Known where they follow from those of the operands; else summed up when asked for.
        self._moments = moments

    @property
    def moments(self) -> tuple[float, float]:
        """q = E‖x_i‖² / d, and p = E⟨x_i, x_j⟩ / d of two tokens of a sequence."""
        if self._moments is None:
            squares = self.coefficients * self.coefficients
            size = len(squares)
            self._moments = float(squares @ self.atoms.q[:size]), float(squares @ self.atoms.p[:size])
        return self._moments

    @property
    def q(self) -> float:
        return self.moments[0]

    @property
    def p(self) -> float:
        return self.moments[1]

    def __add__(self, other: "Moments") -> "Moments":
        return _sum(self, other, 1.0)

    def __sub__(self, other: "Moments") -> "Moments":
        return _sum(self, other, -1.0)

    def __mul__(self, factor: float) -> "Moments":
        factor = float(factor)
        known = self._moments
        moments = None if known is None else (known[0] * factor * factor, known[1] * factor * factor)
        return Moments(self.atoms, self.coefficients * factor, moments, normed=self.normed and factor != 0)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Moments":
        return self * (1 / float(divisor))


def _sum(left: Moments, right: Moments, sign: float) -> Moments:
    short, long = left.coefficients, sign * right.coefficients
    if len(short) > len(long):
        short, long = long, short.copy()
    moments = None
    if not long[: len(short)].any():
        # No part in common, as where a branch meets the stream it came from: squares add up.
        (q, p), (other_q, other_p) = left.moments, right.moments
        moments = q + other_q, p + other_p
    long[: len(short)] += short
    # What is added to 0, as by a schedule at its end, is still the output of a norm.
    normed = (left.normed and not right.coefficients.any()) or (right.normed and not left.coefficients.any())
    return Moments(left.atoms, long, moments, normed=normed)


def single(atoms: Atoms, index: int) -> Moments:
    """The value that is one part alone."""
    coefficients = np.zeros(index + 1)
    coefficients[index] = 1.0
    return Moments(atoms, coefficients, (float(atoms.q[index]), float(atoms.p[index])), atom=index)


def without_mean(x: Moments) -> Moments:
    """The value less what is the same in every feature."""
    constant = x.atoms.constant
    if not any(index < len(x.coefficients) and x.coefficients[index] for index in constant):
        return x
    kept = x.coefficients.copy()
    kept[[index for index in constant if index < len(kept)]] = 0.0
    return Moments(x.atoms, kept)


class Number(float):
    """A parameter of the formula at its initial value: a number, or a vector of which all entries are that number."""


class MomentNorms:
    """The norms of a formula on moments; before training their gains are 1, so all names give the same map.

    centres: True for LayerNorm, which takes the mean over features off; the others divide by the RMS. ScaleNorm's gain
    is √d at first, so it is RMSNorm here.
    """

    def __init__(self, epsilon: float, *, centres: bool) -> None:
        self.epsilon, self.centres = epsilon, centres

    def __call__(self, x: Moments, /, *, groups: int | None = None) -> Moments:
        if self.centres:
            x = without_mean(x)
        normed = x / math.sqrt(x.q + self.epsilon)
        return Moments(normed.atoms, normed.coefficients, normed.moments, normed=True)

    def __getattr__(self, name: str) -> Callable[..., Moments]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self


@mix.register
def _mix(query: Number, values: Sequence[Moments], key: Callable[[Moments], Moments]) -> Moments:
    """With a query of 0, as it starts, attention over depth is the plain mean.

    Raises ValueError for any other: the weights would depend on the token.
    """
    if float(query) != 0.0:
        raise ValueError(f"attention over depth is predicted for a query of 0, where it starts, got {float(query)}")
    total = np.zeros(max(len(value.coefficients) for value in values))
    # A long history is mostly parts as they came: one assignment for all of them.
    np.add.at(total, [value.atom for value in values if value.atom is not None], 1.0)
    for value in values:
        if value.atom is None:
            total[: len(value.coefficients)] += value.coefficients
    return Moments(values[0].atoms, total / len(values))


@unit.register
def _unit(x: Moments) -> Moments:
    # A value that is 0 stays 0, as on tensors.
    return x / math.sqrt(x.q * x.atoms.width) if x.q else x
