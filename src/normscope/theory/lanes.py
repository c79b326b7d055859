"""Coefficients that values share, and other numbers of a stack's parts that grow one by one.

They are numbers until a place of a causal stack has another one than the rest, then arrays over
places.

The equation is T1 of docs/theory.md.
"""

from array import array
from typing import Any

import numpy as np

from .mixing import Array, Entry, Products
from .places import Places

_ROUNDING = 1e-15
"""A share of a coefficient: two that differ by less are one."""
_SMALLEST = 1e-60
"""The smallest factor of a lane: squares of its inverse must not overflow."""
_LARGEST = 1e60
"""The largest factor of a lane."""


class Grown:
    """Holds arrays of one shape, one after the other, with room for as many again where there is
    none left.
    """

    def __init__(self, entries: Array) -> None:
        self._held = np.concatenate([entries, np.zeros((16, *entries.shape[1:]))])
        self._count = len(entries)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Array:
        found: Array = self._held[: self._count][index]
        return found

    def append(self, entry: Entry) -> None:
        if self._count == len(self._held):
            self._held = np.concatenate([self._held, np.zeros_like(self._held)])
        self._held[self._count] = entry
        self._count += 1


def first_of(entries: Any, size: int) -> Array:
    """Returns the first of the entries as they are held, uncopied."""
    return entries[:size] if isinstance(entries, Grown) else np.frombuffer(entries)[:size]


def first_times(held: Any, size: int, scale: Entry) -> Array:
    """Returns the first coefficients times a number: (size,), or (size, K) where places have their
    own. Equation T1.
    """
    first = first_of(held, size)
    if first.ndim == 1 and isinstance(scale, np.ndarray):
        return np.outer(first, scale)
    scaled: Array = first * scale
    return scaled


def last_alone(size: int, coefficient: Entry) -> Array:
    """Returns coefficients of which all but the last are 0: (size,), or (size, K). Equation T1."""
    coefficients = np.zeros((size, *np.shape(coefficient)))
    coefficients[-1] = coefficient
    return coefficients


class Lane:
    """Holds coefficients that values share: forward those of values, back those of gradients. Only
    its end grows.

    They are numbers until one place differs from the rest.
    """

    __slots__ = ("back", "forward", "start")

    def __init__(self, forward: Array, back: Array) -> None:
        self.forward, self.back = _held(forward), _held(back)
        self.start = len(forward)
        """So many were there when the lane was made; each of the others came with an atom of its
        own.
        """

    def append(self, index: int, forward: Entry, back: Entry) -> None:
        """Appends a part's two coefficients, with 0 for the parts between. Equation T1."""
        self.forward = _appended(self.forward, index, forward)
        self.back = _appended(self.back, index, back)

    def has(self, size: int, index: int, forward: Entry, back: Entry) -> bool:
        """Tells whether it has gone on from that size with this part alone: the sum of two values
        has been made before. Equation T1.
        """
        return (
            len(self.forward) > index == size
            and _is_same(self.forward[index], forward)
            and _is_same(self.back[index], back)
        )


def _held(entries: Array) -> Any:
    """Copies coefficients into a list that can grow."""
    return array("d", entries.tobytes()) if entries.ndim == 1 else Grown(entries)


def _appended(held: Any, index: int, entry: Entry) -> Any:
    """Appends to held coefficients; the first entry by place turns all of them into arrays."""
    # The first place that differs: numbers become rows of places.
    if isinstance(held, array) and isinstance(entry, np.ndarray):
        held = _held(np.outer(np.frombuffer(held), np.ones_like(entry)))
    # Parts between, which the value does not have.
    for _ in range(index - len(held)):
        held.append(0.0)
    held.append(entry)
    return held


def _is_same(left: Entry, right: Entry) -> bool:
    """Tells whether two coefficients are equal but for rounding."""
    same = abs(left - right) <= _ROUNDING * abs(right)
    return same if isinstance(same, bool) else bool(same.all())


def divides(scale: Entry, back: Entry) -> bool:
    """Tells whether a lane with those factors can take a part in."""
    if isinstance(scale, np.ndarray) or isinstance(back, np.ndarray):
        return bool(np.all((abs(scale) > _SMALLEST) & (abs(scale) < _LARGEST)) and np.all(back))
    return _SMALLEST < abs(scale) < _LARGEST and bool(back)


def added(short: Array, long: Array) -> Array:
    """Adds coefficients of two values, of which one may have fewer atoms. Equation T1."""
    if len(short) > len(long):
        short, long = long, short
    if short.ndim != long.ndim:
        short, long = (part if part.ndim == 2 else part[:, None] for part in (short, long))
        long = long + np.zeros(short.shape[1])
    long[: len(short)] += short
    return long


def growing(places: Places | None) -> tuple[Any, Any, Any]:
    """Returns empty lists of moments, to which each part adds one, two and apart."""
    if places is None:
        return array("d"), array("d"), array("d")
    rows = np.zeros((0, places.count, places.count))
    return Grown(rows[:, 0]), Grown(rows), Grown(rows)


def weighed(left: Array, right: Array, held: tuple[Any, Any, Any]) -> Products:
    """Returns Σ_a left_a right_a times the moments of part a, over the first parts. Equation T1."""
    one, two, apart = (first_of(part, len(left)) for part in held)
    if one.ndim == 1:
        both = left * right
        return Products(float(both @ one), float(both @ two), float(both @ apart))
    if left.ndim == 1:
        return Products(*(np.tensordot(left * right, part, 1) for part in (one, two, apart)))
    # Coefficients of place i and place j of each part a.
    by_pair = "ai,aij,aj->ij"
    return Products(
        (left * right * one).sum(0),
        *(np.einsum(by_pair, left, part, right) for part in (two, apart)),
    )
