"""Gradients at the parts of a stack's values, added up over all ways on which they come back.

The equations are T12 and T18 of docs/theory.md.
"""

from array import array
from collections import defaultdict
from typing import Any

import numpy as np

from .lanes import Lane, first_of
from .mixing import Array, Entry, Products, make, squared
from .moments import Atoms, Moments
from .places import scaled


class GradientFlow:
    """Gradients at atoms, asked for from the last one to the first.

    A lane's coefficients share a factor, so what arrives at any value of the lane is one running
    sum; only where a lane was copied from another does it have to be spread over all atoms below.
    """

    def __init__(self, atoms: Atoms) -> None:
        count, places = atoms.count, atoms.places
        self._spread: list[Any] = [array("d", bytes(8 * count)) for _ in range(3)]
        if places is not None:
            of_one = (count, places.count)
            of_two = (count, places.count, places.count)
            self._spread = [np.zeros(shape) for shape in (of_one, of_two, of_two)]
        self._open: dict[Lane, list[Entry]] = {}
        self._later: dict[int, list[tuple[Lane, list[Entry]]]] = defaultdict(list)
        self._next = count

    def add(
        self, x: Moments, g: Products, factor: float = 1.0, ends: tuple[int, int] = (-1, -1)
    ) -> None:
        """`factor` times the gradient g at the value x, of atoms below the last that was asked for.

        ends: atoms of what a sub-layer made of x, and in which pass else what came back has the
        covariance g.
        """
        square, pair = squared(x.back)
        square, pair = square * factor, pair * factor
        arrived = [g.one * square, g.two * pair, g.apart * pair]
        if x.lane is None:
            for total, part in zip(self._spread, arrived, strict=True):
                total[x.size - 1] += part
        elif x.size >= self._next:
            self._pour(x.lane, arrived)
        else:
            self._later[x.size].append((x.lane, arrived))

    def at(self, atom: int, later: int = -1) -> Products:
        """The gradient at an atom; of two passes the covariance with that at a `later` one."""
        self._next = atom
        if self._later:
            for size in [size for size in self._later if size > atom]:
                for lane, arrived in self._later.pop(size):
                    self._pour(lane, arrived)
        for lane in [lane for lane in self._open if atom < lane.start]:
            self._close(lane)
        one, two, apart = [total[atom] for total in self._spread]
        for lane, running in self._open.items():
            square, pair = squared(lane.back[atom])
            one = one + square * running[0]
            two = two + pair * running[1]
            apart = apart + pair * running[2]
        return make(Products, (one, two, apart))

    def _pour(self, lane: Lane, arrived: list[Entry]) -> None:
        one, two, apart = self._open.get(lane, (0.0, 0.0, 0.0))
        self._open[lane] = [one + arrived[0], two + arrived[1], apart + arrived[2]]

    def _close(self, lane: Lane) -> None:
        """All that is left of the lane are the coefficients it was made with."""
        back = first_of(lane.back, lane.start)
        squares = back * back
        pairs = back[:, :, None] * back[:, None, :] if back.ndim == 2 else squares
        running = self._open.pop(lane)
        for total, part, factor in zip(self._spread, running, (squares, pairs, pairs), strict=True):
            held = total if isinstance(total, np.ndarray) else np.frombuffer(total)
            below = held[: lane.start]
            as_wide = (*factor.shape, *(1,) * (below.ndim - factor.ndim))
            below += part * factor.reshape(as_wide)


class LoopedGradientFlow(GradientFlow):
    """Of blocks that are run several times: a sum of parts, of which some have covariances, as
    values are.
    """

    def __init__(self, atoms: Atoms) -> None:
        self._arrived = Atoms(atoms.width, places=atoms.places)
        self._rows: list[Array] = []
        self._parts: dict[int, tuple[Moments, int]] = {}

    def add(
        self, x: Moments, g: Products, factor: float = 1.0, ends: tuple[int, int] = (-1, -1)
    ) -> None:
        here, later = ends
        other, part = self._parts[later] if here != later else (x, len(self._rows))
        g = scaled(g.scaled(factor), x.back, other.back, self._arrived.places)
        if here != later:
            self._arrived.relate(part, self._parts[here][1], g)
            return
        self._arrived.add(*g)
        self._rows.append(x.both(scaled=False)[1])
        self._parts[here] = x, part

    def at(self, atom: int, later: int = -1) -> Products:
        return self._arrived.covariance(self._coefficients(atom), self._coefficients(later))

    def _coefficients(self, atom: int) -> Array:
        """Returns what every value that a gradient arrived at has of an atom, 0 where the atom
        came later.
        """
        # As wide as the widest row: numbers and entries by place may stand side by side.
        nothing = 0 * max(self._rows, key=np.ndim)[0]
        return np.array([row[atom] + nothing if atom < len(row) else nothing for row in self._rows])
