"""Gradients at the parts of a stack's values, added up over all ways on which they come back.

The equations are T12 and T18 of docs/theory.md.
"""

from array import array
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from .lanes import Lane, first_of
from .mixing import NOTHING, Array, Entry, Products, make, squared
from .moments import Atoms, Moments
from .places import scaled


class GradientFlow:
    """Gradients at atoms, asked for from the last one to the first.

    A lane's coefficients share a factor, so what arrives at any value of the lane is one running
    sum; only where a lane was copied from another does it have to be spread over all atoms below.
    """

    def __init__(self, atoms: Atoms) -> None:
        count, places = atoms.count, atoms.places
        self._spread: list[Any]
        """At each atom one, two and apart, of what arrived there alone or in a lane that is closed.
        """
        if places is None:
            self._spread = [array("d", bytes(8 * count)) for _ in Products._fields]
        else:
            of_one = (count, places.count)
            of_two = (count, places.count, places.count)
            self._spread = [np.zeros(shape) for shape in (of_one, of_two, of_two)]
        self._open: dict[Lane, Products] = {}
        """Gradients that arrived at all values of a lane that reach the atom asked for last."""
        self._later: dict[int, list[tuple[Lane, Products]]] = defaultdict(list)
        """Gradients that arrived at values that end below that atom, by the values' size."""
        self._next = count

    def add(
        self, x: Moments, g: Products, factor: float = 1.0, ends: tuple[int, int] = (-1, -1)
    ) -> None:
        """Adds `factor` times the gradient g at the value x, whose atoms all lie below the last
        that was asked for.

        ends: the atoms of what a sub-layer made of x, in its pass and in the pass with which g is a
        covariance.

        Equation T12.
        """
        # b_x² of one token, and b_s b_t of two.
        square, pair = squared(x.back)
        square = square * factor
        pair = pair * factor
        arrived = make(Products, (g.one * square, g.two * pair, g.apart * pair))
        # A value that is one part alone hands all of it to that part.
        if x.lane is None:
            for total, part in zip(self._spread, arrived, strict=True):
                total[x.size - 1] += part
        # A value that reaches the atom asked for last counts at once, a shorter one once that is
        # passed.
        elif x.size >= self._next:
            self._pour(x.lane, arrived)
        else:
            self._later[x.size].append((x.lane, arrived))

    def at(self, atom: int, later: int = -1) -> Products:
        """Returns the gradient at an atom: Σ b_a² E‖g_x‖² over the values x that hold it.

        later: the atom of another pass, for the covariance with the gradient there.

        Equation T12.
        """
        self._next = atom
        # Values that end here join in.
        reached = [size for size in self._later if size > atom]
        for size in reached:
            for lane, arrived in self._later.pop(size):
                self._pour(lane, arrived)
        # Below its start a lane's coefficients are fixed, and can be spread over all atoms at
        # once.
        used_up = [lane for lane in self._open if atom < lane.start]
        for lane in used_up:
            self._close(lane)
        # What was spread already, and what runs along the lanes that are still open.
        one, two, apart = (total[atom] for total in self._spread)
        for lane, running in self._open.items():
            square, pair = squared(lane.back[atom])
            one = one + square * running.one
            two = two + pair * running.two
            apart = apart + pair * running.apart
        return make(Products, (one, two, apart))

    def _pour(self, lane: Lane, arrived: Products) -> None:
        """Adds what arrived at a value of a lane to what arrived at the lane's longer values.
        Equation T12.
        """
        self._open[lane] = self._open.get(lane, NOTHING).plus(arrived)

    def _close(self, lane: Lane) -> None:
        """Spreads what arrived at a lane over the atoms below, once all that is left of it are the
        coefficients it was made with. Equation T12.
        """
        back = first_of(lane.back, lane.start)
        squares = back * back
        pairs = back[:, :, None] * back[:, None, :] if back.ndim == 2 else squares
        running = self._open.pop(lane)
        self._spread_below(0, running.one, squares)
        self._spread_below(1, running.two, pairs)
        self._spread_below(2, running.apart, pairs)

    def _spread_below(self, which: int, arrived: Entry, coefficients: Array) -> None:
        """Adds to each of the first atoms what arrived times the atom's coefficient.

        coefficients: squares of b_a, (atoms,), or by place (atoms, K) and (atoms, K, K).

        Equation T12.
        """
        total = self._spread[which]
        held = total if isinstance(total, np.ndarray) else np.frombuffer(total)
        below = held[: len(coefficients)]
        # Where all places have one coefficient, it multiplies an entry by place.
        missing = (1,) * (below.ndim - coefficients.ndim)
        below += arrived * coefficients.reshape(*coefficients.shape, *missing)


class _Arrival(NamedTuple):
    """A gradient that has arrived, as a part of what arrives."""

    value: Moments
    """The value that it has arrived at."""
    part: int


class LoopedGradientFlow(GradientFlow):
    """Follows gradients through blocks that are run several times: they are sums of parts, of which
    some have covariances, as values are.
    """

    def __init__(self, atoms: Atoms) -> None:
        self._arrived = Atoms(atoms.width, places=atoms.places)
        self._rows: list[Array] = []
        self._parts: dict[int, _Arrival] = {}

    def add(
        self, x: Moments, g: Products, factor: float = 1.0, ends: tuple[int, int] = (-1, -1)
    ) -> None:
        """Adds a gradient as a part of its own, with its covariance with what arrived in a later
        pass. Equations T12 and T18.
        """
        g = g.scaled(factor)
        here, later = ends
        # Of two passes through one matrix: no gradient of its own, but a covariance of two.
        if here != later:
            in_later = self._parts[later]
            covariance = scaled(g, x.back, in_later.value.back, self._arrived.places)
            self._arrived.relate(in_later.part, self._parts[here].part, covariance)
            return
        part = len(self._rows)
        self._arrived.add(*scaled(g, x.back, x.back, self._arrived.places))
        self._rows.append(x.both(scaled=False)[1])
        self._parts[here] = _Arrival(x, part)

    def at(self, atom: int, later: int = -1) -> Products:
        """Returns the gradient at an atom, or its covariance with that at a later pass. Equations
        T12 and T18.
        """
        return self._arrived.covariance(self._coefficients(atom), self._coefficients(later))

    def _coefficients(self, atom: int) -> Array:
        """Returns b_a of an atom in every value that a gradient arrived at, 0 where the atom came
        later. Equations T12 and T18.
        """
        # As wide as the widest row: numbers and entries by place may stand side by side.
        nothing = 0 * max(self._rows, key=np.ndim)[0]
        return np.array([row[atom] + nothing if atom < len(row) else nothing for row in self._rows])
