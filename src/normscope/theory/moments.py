"""Mean-field values of a formula: sums of parts that are independent at initialisation.

Whatever a placement does between sub-layers is linear in the embedding and in the outputs of the
sub-layers before it, once a norm is read as a division by its standard deviation (which
concentrates as the width grows). Each of these parts is an *atom*, drawn independently of the
others because every F ends in a matrix of its own. So a value is one coefficient an atom, and a few
second moments an atom (`Products`) say all that is needed. The coefficients carry gradients back,
too (`backward.py`); there a norm's has a correction of order 1/d, so they are kept apart.

What costs as much as a value has atoms, a copy of its lane (`coefficients.py`), is done only where
two values have atoms in common.

The equations are T1 and T4 of docs/theory.md.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from .coefficients import Coefficients
from .lanes import Lane, added, divides
from .mixing import Array, Entry, Products, make, squared, vanishes
from .places import (
    RANDOM,
    Differing,
    GradientMap,
    Places,
    gap_of,
    of_both,
    of_parts,
    scaled,
    spread_in_common,
    summed,
)
from .second_moments import SecondMoments


class Unpredictable(ValueError):
    """A placement has no prediction in this setting; the message says why. Nothing is wrong with
    the setting.
    """


_TOKENS_TWICE = (
    "the formula multiplies two values that depend on the token, of which theory knows no second "
    "moments: this placement cannot be predicted"
)


class Atoms(SecondMoments):
    """All parts of a stack's values so far, and what has been made of values that are asked for
    again.
    """

    def __init__(
        self, width: int, *, scatter_width: float | None = None, places: Places | None = None
    ) -> None:
        super().__init__(width, scatter_width=scatter_width, places=places)
        self.normed: dict[Hashable, Moments] = {}
        """What a norm that is the same for all has made of a value."""
        self.past_norms: set[int] = set()
        """Parts that were added to a norm's output, or to what F has read."""
        self.bent = 0.0
        """The largest share of what a squashing norm read that another one had bent."""
        self.remainders: list[Remainder] = []
        """Parts that squashing norms brought, in the order of their atoms."""
        self.learnt: list[Use] = []
        """Parts of size 0 that an update of a number makes grow, in the order of their atoms."""
        self.last_sum: tuple[Moments, Moments, Moments] | None = None
        """What was computed last, of what, for streams that are one value; squashed ones have their
        own remainders.
        """
        self._summed: tuple[tuple[Any, ...], Moments, Moments] | None = None
        """What attention over depth has summed up last, the sum of all but the last value, and of
        all.
        """

    def total(self, values: "tuple[Moments, ...]", of: "Callable[[Moments], Moments]") -> "Moments":
        """The sum of what the function makes of values, two or more; that of an earlier history is
        not made again.
        """
        keys = (of, *values)
        before = self._sum_before(keys)
        if before is None:
            before = of(values[0])
            for earlier in values[1:-1]:
                before = before + of(earlier)
        total = before + of(values[-1])
        self._summed = keys, before, total
        return total

    def _sum_before(self, keys: "tuple[Any, ...]") -> "Moments | None":
        """The sum of all but the last of these values, where it is known."""
        if self._summed is None:
            return None
        known, before_last, total = self._summed
        # A history grows by one value at a time, or its last value does.
        if known == keys[:-1]:
            return total
        if known[:-1] == keys[:-1]:
            return before_last
        return None


class Moments(Coefficients):
    """A value of the formula: its coefficients, and the second moments that they give it."""

    __slots__ = ("apart", "differing", "normed", "p", "q", "spread")

    atoms: Atoms

    def __init__(
        self,
        atoms: Atoms,
        scale: Entry,
        back: Entry,
        lane: Lane | None,
        size: int,
        products: tuple[Entry, Entry, Entry],
        spread: Entry,
        differing: Differing,
        normed: bool = False,
        centred: bool = False,
    ) -> None:
        super().__init__(atoms, scale, back, lane, size, centred)
        self.q, self.p, self.apart = products
        self.spread = spread
        """d · Var(‖x‖² / d), over draws of what came after the last norm."""
        self.differing = differing
        self.normed = normed

    @classmethod
    def of(cls, atoms: Atoms, coefficients: Array) -> "Moments":
        """The value with these coefficients, one for each of the first atoms."""
        products = atoms.weighed(coefficients)
        lane = Lane(coefficients, coefficients)
        parts = [single(atoms, index) for index in range(len(coefficients))]
        differing = of_parts(
            (coefficients**2).reshape(len(parts), -1).mean(1), [part.differences for part in parts]
        )
        return cls(
            atoms, 1.0, 1.0, lane, len(coefficients), products, 2 * products.one**2, differing
        )

    @classmethod
    def sum_of(cls, atoms: Atoms) -> "Moments":
        """The sum of all parts so far."""
        return cls.of(atoms, np.ones(atoms.count))

    @property
    def products(self) -> Products:
        return make(Products, (self.q, self.p, self.apart))

    @property
    def mean(self) -> Products:
        """Its moments over all places."""
        places = self.atoms.places
        return self.products if places is None else places.mean(self.products)

    @property
    def differences(self) -> tuple[float, Differing]:
        """What a token has beyond what two have in common, and how they differ in it."""
        places = self.atoms.places
        gap = max(0.0, self.q - self.p) if places is None else gap_of(self.products, places)
        return gap, self.differing

    def covariance(self, other: "Moments") -> Products:
        """E⟨x, y⟩ / d with another value; of two places the mean over which of them is whose."""
        found = self.atoms.covariance(self.both(scaled=False)[0], other.both(scaled=False)[0])
        return scaled(found, self.scale, other.scale, self.atoms.places)

    def times(self, factor: Entry, back: Entry, *, normed: bool) -> "Moments":
        """The value times `factor`, its gradient times `back`."""
        square, pair = squared(factor)
        return Moments(
            self.atoms,
            self.scale * factor,
            self.back * back,
            self.lane,
            self.size,
            (self.q * square, self.p * pair, self.apart * pair),
            0.0 if normed else self.spread * square * square,
            self.differing,
            normed,
            self.centred,
        )

    def __add__(self, other: "Moments | float") -> "Moments":
        if not isinstance(other, Moments):
            if not other:
                return self
            return _sum(self, single(self.atoms, self.atoms.one()) * float(other))
        known = None if self.atoms.remainders else self.atoms.last_sum
        if known is None or known[0] is not self or known[1] is not other:
            known = self.atoms.last_sum = self, other, _sum(self, other)
        return known[2]

    __radd__ = __add__

    def __sub__(self, other: "Moments | float") -> "Moments":
        return self + other * -1.0

    def __rsub__(self, other: float) -> "Moments":
        return self * -1.0 + other

    def __mul__(self, factor: "float | Moments | tuple[Any, ...]") -> "Moments":
        """Raises Unpredictable where the factor depends on the token as well, or from feature to
        feature.
        """
        if isinstance(factor, Moments):
            raise Unpredictable(_TOKENS_TWICE)
        if isinstance(factor, tuple):
            raise Unpredictable(
                "the formula multiplies a stream with a vector whose entries start from different "
                "numbers, which theory does not follow: this placement cannot be predicted"
            )
        if isinstance(factor, Followed):
            return factor.times(self)
        if (factor := float(factor)) == 1.0:
            return self
        made = self.times(factor, factor, normed=False)
        made.normed = self.normed and factor != 0
        return made

    __rmul__ = __mul__

    def __truediv__(self, divisor: "float | Moments") -> "Moments":
        return self * (1 / divisor)

    def __rtruediv__(self, other: object) -> "Moments":
        raise Unpredictable(_TOKENS_TWICE)

    __pow__ = __rtruediv__


def _sum(left: Moments, right: Moments) -> Moments:
    # What is added to 0, as by a schedule at its end, stays what it is: the output of a norm, too.
    if vanishes(right.scale):
        return left
    if vanishes(left.scale):
        return right
    if left.lane is None:
        left, right = right, left
    meets = left.lane is not None and right.lane is None and right.size > left.size
    if meets and not left.atoms.related[0]:
        return _sum_with_branch(left, right)
    return _sum_in_common(left, right)


def _sum_with_branch(stream: Moments, branch: Moments) -> Moments:
    """Adds to a stream what came later than all its parts: no part in common, so squares add up.

    Equations T1 and T4.
    """
    if stream.normed:
        stream.atoms.past_norms.add(branch.size - 1)
    lane, scale, back = _lane_with_branch(stream, branch)
    differing = RANDOM
    if stream.atoms.draws:
        differing = summed(stream.differences, branch.differences)
    return Moments(
        stream.atoms,
        scale,
        back,
        lane,
        branch.size,
        (stream.q + branch.q, stream.p + branch.p, stream.apart + branch.apart),
        stream.spread + branch.spread + 4 * stream.q * branch.q,
        differing,
        centred=stream.centred,
    )


def _lane_with_branch(stream: Moments, branch: Moments) -> tuple[Lane, Entry, Entry]:
    """Returns a lane that ends with the branch, and what multiplies its coefficients, forward and
    back: the stream's own lane as long as the branch can be appended to it, else a copy.
    """
    lane, index = stream.lane, branch.size - 1
    if lane is not None and divides(stream.scale, stream.back):
        forward = branch.scale / stream.scale
        backward = branch.back / stream.back
        # Streams that start alike stay so for long: the others find what the first of them has
        # appended.
        found = lane.has(stream.size, index, forward, backward)
        if not found and len(lane.forward) == stream.size:
            lane.append(index, forward, backward)
            found = True
        if found:
            return lane, stream.scale, stream.back
    copy = Lane(*stream.both())
    copy.append(index, branch.scale, branch.back)
    return copy, 1.0, 1.0


def _sum_in_common(left: Moments, right: Moments) -> Moments:
    """Adds values that may have parts in common, whose coefficients add up."""
    same_lane = left.lane is right.lane is not None
    same_parts = left.size == right.size and left.centred == right.centred
    if same_lane and same_parts and divides(left.scale, left.back):
        return _sum_of_multiples(left, right)
    (forward, back), (more, more_back) = left.both(), right.both()
    forward, back = added(forward, more), added(back, more_back)
    products = left.atoms.weighed(forward)
    spread = spread_in_common((left.q, left.spread), (right.q, right.spread), products.one)
    join = summed if left.lane is None or right.lane is None else of_both
    differing = join(left.differences, right.differences) if left.atoms.draws else RANDOM
    return Moments(
        left.atoms, 1.0, 1.0, Lane(forward, back), len(forward), products, spread, differing
    )


def _sum_of_multiples(left: Moments, right: Moments) -> Moments:
    """Adds two multiples of one value: the sum is another multiple of it."""
    scale = left.scale + right.scale
    square, pair = squared(scale / left.scale)
    products = Products(left.q * square, left.p * pair, left.apart * pair)
    return Moments(
        left.atoms,
        scale,
        left.back + right.back,
        left.lane,
        left.size,
        products,
        spread_in_common((left.q, left.spread), (right.q, right.spread), products.one),
        left.differing,
        centred=left.centred,
    )


class Remainder(NamedTuple):
    """What a squashing norm makes of a value beside a multiple of it: a part without covariance
    with the value.
    """

    input: Moments
    atom: int
    back: GradientMap
    """Gradients at the part to those that the value gets of it."""


class Use(NamedTuple):
    """A value times a trained number, where updates of the number are followed."""

    value: Moments
    atom: int
    number: Hashable
    """Whose it is: one number may be used in several places."""
    entries: int
    """1 of a single number for all features."""


class Followed(float):
    """A number whose updates are followed: a value times it has a part, of size 0, that an update
    makes grow.
    """

    number: Hashable
    entries: int

    def times(self, x: Moments) -> Moments:
        """The product."""
        atoms = x.atoms
        part = single(atoms, atoms.add(0.0, 0.0, 0.0, spread=0.0))
        atoms.learnt.append(Use(x, part.size - 1, self.number, self.entries))
        made = x * float(self) + part
        made.normed = x.normed and float(self) != 0
        return made


def single(atoms: Atoms, index: int) -> Moments:
    """The value that is one part alone."""
    return Moments(
        atoms,
        1.0,
        1.0,
        None,
        index + 1,
        atoms.products(index),
        atoms.spreads[index],
        atoms.differing[index],
    )
