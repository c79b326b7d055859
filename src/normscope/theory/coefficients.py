"""The coefficients of a value: what it has of each part of its stack.

A stream grows by a part a sub-layer, and every norm divides all of its coefficients alike. Values
therefore share *lanes*: a list of coefficients to which sums append, and a number that multiplies
all of them.

The equations are T1 and T3 of docs/theory.md.
"""

from typing import Any, NamedTuple

import numpy as np

from .lanes import Lane, divides, first_times, last_alone
from .mixing import Array, Entry
from .second_moments import SecondMoments


class Stretch(NamedTuple):
    """The first coefficients of a lane, times a number: all that a value has of its parts."""

    lane: Lane | None
    """The lane; None of a value that is one part alone, which is the last of `size`."""
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
        """Returns the value's coefficients c_a of every atom up to the last one that it has; by
        place, where they differ (size, K). Equation T1.
        """
        return self._by_place(self._dense(self.lane.forward if self.lane else None, self.scale))

    @property
    def gradient_coefficients(self) -> Array:
        """Returns the coefficients b_a that carry gradients: a norm's factor has the mean of its
        inverse variance in it. Equations T3 and T12.
        """
        return self._by_place(self._dense(self.lane.back if self.lane else None, self.back))

    def at(self, atom: int) -> tuple[Entry, Entry]:
        """Returns the value's coefficients c_a and b_a of one atom, 0 where it has none. Equations
        T1 and T12.
        """
        if self.lane is None or atom >= self.size:
            return (self.scale, self.back) if atom == self.size - 1 else (0.0, 0.0)
        return self.lane.forward[atom] * self.scale, self.lane.back[atom] * self.back

    def _by_place(self, dense: Array) -> Array:
        """Repeats coefficients for every place, where a stack has places. Equation T17."""
        places = self.atoms.places
        if places is None or dense.ndim == 2:
            return dense
        return np.outer(dense, np.ones(places.count))

    def both(self, *, scaled: bool = True) -> tuple[Array, Array]:
        """Returns c_a and b_a of every atom, a number an atom where places have the same.

        scaled: False without the factor that all of them have in common.

        Equations T1 and T12.
        """
        scale = self.scale if scaled else 1.0
        back = self.back if scaled else 1.0
        lane = self.lane
        return self._dense(lane and lane.forward, scale), self._dense(lane and lane.back, back)

    def _dense(self, held: Any, scale: Entry) -> Array:
        """Returns one of the lane's two lists times a factor, with 0 for atoms that a LayerNorm has
        taken off. Equations T1 and T2.
        """
        if held is None:
            return last_alone(self.size, scale)
        dense = first_times(held, self.size, scale)
        if self.centred:
            dense[[index for index in self.atoms.constant if index < self.size]] = 0.0
        return dense


def stretch_with_branch(stream: Coefficients, branch: Coefficients) -> Stretch:
    """Returns the stretch that ends with the branch: of the stream's own lane as long as the branch
    can be appended to it, else of a copy. Equation T1.
    """
    lane = stream.lane
    index = branch.size - 1
    if lane is not None and divides(stream.scale, stream.back):
        # Appended so that the lane's common factor gives the branch its own coefficient.
        forward = branch.scale / stream.scale
        backward = branch.back / stream.back
        # Streams that start alike stay so for long: the others find what the first of them has
        # appended.
        found = lane.has(stream.size, index, forward, backward)
        if not found and len(lane.forward) == stream.size:
            lane.append(index, forward, backward)
            found = True
        if found:
            return Stretch(lane, branch.size, stream.scale, stream.back)
    # The lane has gone on elsewhere: what was appended to it is no part of this sum.
    copy = Lane(*stream.both())
    copy.append(index, branch.scale, branch.back)
    return Stretch(copy, branch.size)
