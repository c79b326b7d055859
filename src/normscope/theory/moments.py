"""Mean-field values of a formula: sums of parts that are independent at initialisation.

Whatever a placement does between sub-layers is linear in the embedding and in the outputs of the
sub-layers before it, once a norm is read as a division by its standard deviation (which
concentrates as the width grows). Each of these parts is an *atom*, drawn independently of the
rest because every F ends in a matrix of its own. So a value is one coefficient an atom, and a few
second moments an atom (`Products`) say all that is needed. The coefficients carry gradients back,
too (`backward.py`); there a norm's has a correction of order 1/d, so they are kept apart.

What costs as much as a value has atoms, a copy of its lane (`coefficients.py`), is done only where
two values have atoms in common.

The equations are T1 and T4 of docs/theory.md.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from .coefficients import Coefficients, Stretch, stretch_with_branch
from .lanes import Lane, added, divides
from .mixing import Array, Entry, Products, make, squared, vanishes
from .places import (
    RANDOM,
    Differences,
    Differing,
    GradientMap,
    Places,
    Scatter,
    gap_of,
    of_both,
    of_parts,
    scaled,
    spread_in_common,
    summed,
)
from .second_moments import SecondMoments


class Unpredictable(ValueError):
    """Says why a placement has no prediction in a setting with which nothing is wrong."""


_TOKENS_TWICE = (
    "the formula multiplies two values that depend on the token, of which theory knows no second "
    "moments: this placement cannot be predicted"
)


class Atoms(SecondMoments):
    """Holds all parts of a stack's values so far, and what was made of values that come again."""

    def __init__(
        self, width: int, *, scatter_width: float | None = None, places: Places | None = None
    ) -> None:
        super().__init__(width, scatter_width=scatter_width, places=places)
        self.normed: dict[Hashable, Moments] = {}
        """Values that a norm, the same for all, has made of values."""
        self.past_norms: set[int] = set()
        """Parts that were added to a norm's output, or to what F has read."""
        self.bent = 0.0
        """The largest share of what a squashing norm read that a norm before it had bent."""
        self.remainders: list[Remainder] = []
        """Parts that squashing norms brought, in the order of their atoms."""
        self.learnt: list[Use] = []
        """Parts of size 0 that an update of a number makes grow, in the order of their atoms."""
        self.last_sum: _LastSum | None = None
        """The last sum, for streams that are one value; squashed ones have their own remainders."""
        self._summed: _LastTotal | None = None
        """The last sum of attention over depth."""

    def total(self, values: "tuple[Moments, ...]", of: "Callable[[Moments], Moments]") -> "Moments":
        """Returns Σ of(x) over two or more values; the sum over an earlier history is not made
        again. Equation T1.
        """
        keys = (of, *values)
        before = None if self._summed is None else self._summed.sum_before(keys)
        if before is None:
            before = of(values[0])
            for earlier in values[1:-1]:
                before = before + of(earlier)
        total = before + of(values[-1])
        self._summed = _LastTotal(keys, before, total)
        return total


class _LastSum(NamedTuple):
    """A sum of two values that was computed before."""

    left: "Moments"
    right: "Moments"
    sum: "Moments"


class _LastTotal(NamedTuple):
    """A sum over a history that was computed before."""

    keys: tuple[Any, ...]
    """The function of the values, and the values."""
    all_but_last: "Moments"
    total: "Moments"

    def sum_before(self, keys: tuple[Any, ...]) -> "Moments | None":
        """Returns the sum of all terms but the last, where the history that was summed had them."""
        if self.keys == keys[:-1]:
            return self.total
        return self.all_but_last if self.keys[:-1] == keys[:-1] else None


class Moments(Coefficients):
    """A value of the formula: its coefficients, and the second moments that they give it."""

    __slots__ = ("apart", "differing", "normed", "one", "spread", "two")

    atoms: Atoms

    def __init__(
        self,
        atoms: Atoms,
        stretch: Stretch,
        products: Products,
        spread: Entry,
        differing: Differing,
        *,
        normed: bool = False,
        centred: bool = False,
    ) -> None:
        super().__init__(atoms, stretch, centred=centred)
        self.one = products.one
        self.two = products.two
        self.apart = products.apart
        self.spread = spread
        """d · Var(‖x‖² / d), over draws of what came after the last norm."""
        self.differing = differing
        self.normed = normed

    @classmethod
    def of(cls, atoms: Atoms, coefficients: Array) -> "Moments":
        """Returns the value with these coefficients, one for each of the first atoms. Equations T1,
        T4 and T10.
        """
        count = len(coefficients)
        products = atoms.weighed(coefficients)
        differences = [single(atoms, index).differences for index in range(count)]
        # A mean over places, where parts have a coefficient a place.
        squares = (coefficients**2).reshape(count, -1).mean(1)
        return cls(
            atoms,
            Stretch(Lane(coefficients, coefficients), count),
            products,
            spread=2 * products.one**2,
            differing=of_parts(squares, differences),
        )

    @classmethod
    def sum_of(cls, atoms: Atoms) -> "Moments":
        """Returns the sum of all parts so far. Equation T1."""
        return cls.of(atoms, np.ones(atoms.count))

    @property
    def products(self) -> Products:
        """Returns q, p and apart together. Equation T1."""
        return make(Products, (self.one, self.two, self.apart))

    @property
    def mean(self) -> Products:
        """Returns the value's moments over all places. Equation T17."""
        places = self.atoms.places
        return self.products if places is None else places.mean(self.products)

    @property
    def differences(self) -> Differences:
        """Returns what a token has beyond what two have in common, and how they differ in it.
        Equation T10.
        """
        places = self.atoms.places
        gap = max(0.0, self.one - self.two) if places is None else gap_of(self.products, places)
        return make(Differences, (gap, self.differing))

    @property
    def scatter(self) -> Scatter:
        """Returns the value's square, and how much that scatters. Equation T4."""
        return Scatter(self.one, self.spread)

    def covariance(self, other: "Moments") -> Products:
        """Returns E⟨x, y⟩ / d with a second value y; of two places the mean of both orders.
        Equation T18.
        """
        found = self.atoms.covariance(self.both(scaled=False)[0], other.both(scaled=False)[0])
        return scaled(found, self.scale, other.scale, self.atoms.places)

    def times(self, factor: Entry, back: Entry, *, normed: bool) -> "Moments":
        """Returns the value times `factor`, whose gradient is multiplied by `back`: q by factor²,
        spread by factor⁴.

        normed: True of a norm's output, which has the same size in every draw.

        Equations T1 and T4.
        """
        square, pair = squared(factor)
        return Moments(
            self.atoms,
            Stretch(self.lane, self.size, self.scale * factor, self.back * back),
            make(Products, (self.one * square, self.two * pair, self.apart * pair)),
            # A norm's output has the size that it has in every draw.
            spread=0.0 if normed else self.spread * square * square,
            differing=self.differing,
            normed=normed,
            centred=self.centred,
        )

    def __add__(self, other: "Moments | float") -> "Moments":
        """Returns the sum with a value, or with the same number in every feature. Equation T1."""
        if not isinstance(other, Moments):
            if not other:
                return self
            return _sum(self, single(self.atoms, self.atoms.one()) * float(other))
        known = None if self.atoms.remainders else self.atoms.last_sum
        if known is None or known.left is not self or known.right is not other:
            known = self.atoms.last_sum = _LastSum(self, other, _sum(self, other))
        return known.sum

    __radd__ = __add__

    def __sub__(self, other: "Moments | float") -> "Moments":
        """Returns the difference, of which parts are added with the sign changed. Equation T1."""
        return self + other * -1.0

    def __rsub__(self, other: float) -> "Moments":
        """Returns a number less the value. Equation T1."""
        return self * -1.0 + other

    def __mul__(self, factor: "float | Moments | tuple[Any, ...]") -> "Moments":
        """Returns a multiple of the value. Raises Unpredictable where the factor depends on the
        token as well, or from feature to feature. Equation T1.
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
        """Returns the value over a number. Equation T1."""
        return self * (1 / divisor)

    def __rtruediv__(self, other: object) -> "Moments":
        raise Unpredictable(_TOKENS_TWICE)

    __pow__ = __rtruediv__


def _sum(left: Moments, right: Moments) -> Moments:
    """Adds two values: by squares where the second came later than all parts of the first, else by
    coefficients. Equation T1.
    """
    # What is added to 0, as by a schedule at its end, stays what it is: the output of a norm, too.
    if vanishes(right.scale):
        return left
    if vanishes(left.scale):
        return right
    if left.lane is None:
        left, right = right, left
    # The usual sum of a stream and F(x), which came later than all of the stream.
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
    differing = RANDOM
    if stream.atoms.draws:
        differing = summed(stream.differences, branch.differences)
    return Moments(
        stream.atoms,
        stretch_with_branch(stream, branch),
        stream.products.plus(branch.products),
        # Beside both variances, Var‖a + b‖² has 4 E⟨a, b⟩², which is 4 d q_a q_b.
        spread=stream.spread + branch.spread + 4 * stream.one * branch.one,
        differing=differing,
        centred=stream.centred,
    )


def _sum_in_common(left: Moments, right: Moments) -> Moments:
    """Adds values that may have parts in common, whose coefficients add up. Equations T1, T4 and
    T10.
    """
    same_lane = left.lane is right.lane is not None
    same_parts = left.size == right.size and left.centred == right.centred
    if same_lane and same_parts and divides(left.scale, left.back):
        return _sum_of_multiples(left, right)
    forward, back = left.both()
    more, more_back = right.both()
    forward = added(forward, more)
    back = added(back, more_back)
    products = left.atoms.weighed(forward)
    differing = RANDOM
    if left.atoms.draws:
        # A part alone is no stream: nothing that both were made of is counted twice.
        alone = left.lane is None or right.lane is None
        join = summed if alone else of_both
        differing = join(left.differences, right.differences)
    return Moments(
        left.atoms,
        Stretch(Lane(forward, back), len(forward)),
        products,
        spread=spread_in_common(left.scatter, right.scatter, products.one),
        differing=differing,
    )


def _sum_of_multiples(left: Moments, right: Moments) -> Moments:
    """Adds a x and b x, which is (a + b) x. Equations T1 and T4."""
    # (a + b) x; its gradient comes back by the sum as well.
    scale = left.scale + right.scale
    square, pair = squared(scale / left.scale)
    products = Products(left.one * square, left.two * pair, left.apart * pair)
    return Moments(
        left.atoms,
        Stretch(left.lane, left.size, scale, left.back + right.back),
        products,
        spread=spread_in_common(left.scatter, right.scatter, products.one),
        differing=left.differing,
        centred=left.centred,
    )


class Remainder(NamedTuple):
    """Holds the part φ(x) − (E φ') x that a squashing norm makes of x, which has no covariance with
    x.
    """

    input: Moments
    atom: int
    back: GradientMap
    """Gradients at the part to those that the value gets of it."""


class Use(NamedTuple):
    """Holds a value times a trained number, where updates of the number are followed."""

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
        """Returns the product with a value x: the number times x, and a part of size 0 that an
        update of the number makes grow. Equation T24.
        """
        atoms = x.atoms
        # Of size 0 now: an update of the number gives it x times the step.
        part = single(atoms, atoms.add(0.0, 0.0, 0.0, spread=0.0))
        atoms.learnt.append(Use(x, part.size - 1, self.number, self.entries))
        made = x * float(self) + part
        made.normed = x.normed and float(self) != 0
        return made


def single(atoms: Atoms, index: int) -> Moments:
    """Returns the value that is one part alone. Equation T1."""
    return Moments(
        atoms,
        Stretch(None, index + 1),
        atoms.products(index),
        spread=atoms.spreads[index],
        differing=atoms.differing[index],
    )
