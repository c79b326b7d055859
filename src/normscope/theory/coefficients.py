"""The coefficients of a value: what it has of each part of its stack.

A stream grows by a part a sub-layer, and every norm divides all of its coefficients alike. Values
therefore share *lanes*: a list of coefficients to which sums append, and a number that multiplies
all of them.

The equations are T1 and T3 of docs/theory.md.
"""

from typing import Any, NamedTuple

import numpy as np

from .lanes import Lane, first_times, last_alone
from .mixing import Array, Entry
from .second_moments import SecondMoments


class Stretch(NamedTuple):
    """The first coefficients of a lane, times a number: all that a value has of its parts."""

    lane: Lane | None
    """None of a value that is one part alone, which is the last of `size`."""
    size: int
    """So many parts there were when the value was made."""
    scale: Entry = 1.0
    """Multiplies the lane's coefficients of values."""
    back: Entry = 1.0
    """Multiplies those of gradients."""


class Coefficients:
    """The coefficients of one value, forward and back."""

    __slots__ = ("atoms", "back", "centred", "lane", "scale", "size")

    def __init__(self, atoms: SecondMoments, stretch: Stretch, *, centred: bool) -> None:
        self.atoms = atoms
        self.lane = stretch.lane
        self.size = stretch.size
        self.scale = stretch.scale
        self.back = stretch.back
        self.centred = centred
        """True where the parts that are the same in every feature are not meant."""

    @property
    def coefficients(self) -> Array:
        """Returns those of every atom up to the last one that the value has; by place, where they
        differ (size, K).
        """
        return self._by_place(self._dense(self.lane.forward if self.lane else None, self.scale))

    @property
    def gradient_coefficients(self) -> Array:
        """The same for gradients: a norm's factor has the mean of its inverse variance in it."""
        return self._by_place(self._dense(self.lane.back if self.lane else None, self.back))

    def at(self, atom: int) -> tuple[Entry, Entry]:
        """Its coefficients of one part, and those of gradients."""
        if self.lane is None or atom >= self.size:
            return (self.scale, self.back) if atom == self.size - 1 else (0.0, 0.0)
        return self.lane.forward[atom] * self.scale, self.lane.back[atom] * self.back

    def _by_place(self, dense: Array) -> Array:
        places = self.atoms.places
        if places is None or dense.ndim == 2:
            return dense
        return np.outer(dense, np.ones(places.count))

    def both(self, *, scaled: bool = True) -> tuple[Array, Array]:
        """Returns those of value and gradient, a number an atom where places have the same;
        `scaled` by what all of them have.
        """
        scale = self.scale if scaled else 1.0
        back = self.back if scaled else 1.0
        lane = self.lane
        return self._dense(lane and lane.forward, scale), self._dense(lane and lane.back, back)

    def _dense(self, held: Any, scale: Entry) -> Array:
        if held is None:
            return last_alone(self.size, scale)
        dense = first_times(held, self.size, scale)
        if self.centred:
            dense[[index for index in self.atoms.constant if index < self.size]] = 0.0
        return dense
