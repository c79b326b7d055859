"""Mean-field values of a formula: sums of parts that are independent at initialisation.

Whatever a placement does between sub-layers is linear in the embedding and in the outputs of the
sub-layers before it, once a norm is read as a division by its standard deviation (which
concentrates as the width grows). Each of these parts is an *atom*, drawn independently of the
others because every F ends in a matrix of its own. So a value is one coefficient an atom, and a few
second moments an atom (`Products`) say all that is needed. The coefficients carry gradients back,
too (`backward.py`); there a norm's has a correction of order 1/d, so they are kept apart.

A stream grows by an atom a sub-layer, and every norm divides all of its coefficients alike. Values
therefore share
*lanes*: a list of coefficients to which sums append, and a number that multiplies all of them. What
  costs as much as a value has atoms, a copy of its lane, is done only where two values have atoms
  in common.
"""

from array import array
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from .lanes import Lane, added, divides, first_of, growing, weighed
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


class Unpredictable(ValueError):
    """A placement has no prediction in this setting; the message says why. Nothing is wrong with
    the setting.
    """


_TOKENS_TWICE = (
    "the formula multiplies two values that depend on the token, of which theory knows no second "
    "moments: this placement cannot be predicted"
)


class Atoms:
    """Second moments of all parts of a stack's values so far, in the order in which they came to
    be.
    """

    def __init__(
        self, width: int, *, scatter_width: float | None = None, places: Places | None = None
    ) -> None:
        self.width = width
        self.places = places
        """Of a sequence, where they differ: all moments are arrays then."""
        self.scatter_width = width if scatter_width is None else scatter_width
        """That a norm's divisor scatters with: infinite where it does not."""
        self.draws = True
        """Whether logits are drawn, which depend on how tokens differ; else nothing asks for
        that.
        """
        self.count = 0
        self._products, self._covariances = growing(places), growing(places)
        self.related = array("q"), array("q")
        """Pairs of parts that came of one matrix and have covariances; all others have none."""
        self.spreads: Any = array("d") if places is None else []
        """d · Var ‖a‖² / d² of each."""
        self.differing: list[Differing] = []
        self.constant: list[int] = []
        """Parts that are the same in every feature, which LayerNorm takes off."""
        self._one: int | None = None
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

    def add(
        self,
        q: Entry,
        p: Entry,
        apart: Entry = 0.0,
        *,
        spread: Entry | None = None,
        centred: bool = True,
        differing: Differing = RANDOM,
    ) -> int:
        """A new part; its index. `centred` is False for one that is the same in every feature.

        spread: d · Var(‖a‖² / d), 2q² of a Gaussian where it is not given.
        """
        self.differing.append(differing if self.draws else RANDOM)
        if self.places is not None:
            q, p, apart = self.places.filled(Products(q, p, apart))
        one, two, three = self._products
        one.append(q)
        two.append(p)
        three.append(apart)
        self.spreads.append(2 * q * q if spread is None else spread)
        if not centred:
            self.constant.append(self.count)
        self.count += 1
        return self.count - 1

    def one(self) -> int:
        """The part that is 1 in every feature of every token, made where it is first asked for."""
        if self._one is None:
            self._one = self.add(1.0, 1.0, 1.0, spread=0.0, centred=False)
        return self._one

    def products(self, index: int) -> Products:
        one, two, three = self._products
        return make(Products, (one[index], two[index], three[index]))

    @property
    def q(self) -> Array:
        return first_of(self._products[0], self.count)

    def total(self, values: "tuple[Moments, ...]", of: "Callable[[Moments], Moments]") -> "Moments":
        """The sum of what the function makes of values, two or more; that of an earlier history is
        not made again.
        """
        *rest, _ = keys = (of, *values)
        # A history grows by one value at a time, or its last value does: the sum of those before it
        # is known.
        known, before_last, total = self._summed or ((), None, None)
        before = (
            total if known == tuple(rest) else before_last if known[:-1] == tuple(rest) else None
        )
        if before is None:
            before = of(values[0])
            for earlier in values[1:-1]:
                before = before + of(earlier)
        self._summed = keys, before, before + of(values[-1])
        return self._summed[2]

    def relate(self, left: int, right: int, covariance: Products) -> None:
        """Give two parts a covariance."""
        filled = covariance if self.places is None else self.places.filled(covariance)
        for held, entry in zip(
            (*self.related, *self._covariances), (left, right, *filled), strict=True
        ):
            held.append(entry)

    def weighed(self, coefficients: Array) -> Products:
        """The moments of a value with these coefficients: (size,) where all places have the same,
        else (size, K).
        """
        if self.related[0]:
            return self.covariance(coefficients, coefficients)
        return weighed(coefficients, coefficients, self._products)

    def covariance(self, left: Array, right: Array) -> Products:
        """E⟨x, y⟩ / d of two values with these coefficients; of two places the mean over which of
        them is whose.
        """
        if left.ndim != right.ndim:
            left, right = left.reshape(len(left), -1), right.reshape(len(right), -1)
        left, right = self._filled(left), self._filled(right)
        found, pairs = (
            weighed(left, right, self._products),
            [np.frombuffer(each, np.int64) for each in self.related],
        )
        for one, other in (pairs, pairs[::-1]):
            found = found.plus(weighed(left[one], right[other], self._covariances))
        one, two, apart = found
        return (
            found
            if self.places is None
            else Products(one, (two + two.T) / 2, (apart + apart.T) / 2)
        )

    def _filled(self, coefficients: Array) -> Array:
        return np.concatenate(
            [coefficients, np.zeros((self.count - len(coefficients), *coefficients.shape[1:]))]
        )

    def shares(self, coefficients: Array) -> Array:
        """What each part is of E‖x‖² / d, as `q` is: half of what two parts have in common is each
        one's.
        """
        coefficients = self._filled(coefficients)
        squares = coefficients**2 * self.q
        first, second = (np.frombuffer(each, np.int64) for each in self.related)
        common = (
            coefficients[first] * coefficients[second] * first_of(self._covariances[0], len(first))
        )
        for part in (first, second):
            np.add.at(squares, part, common)
        return squares


class Moments:
    """A value of the formula: `scale` times the first `size` coefficients of a lane, or times the
    last atom alone.
    """

    __slots__ = (
        "apart",
        "atoms",
        "back",
        "centred",
        "differing",
        "lane",
        "normed",
        "p",
        "q",
        "scale",
        "size",
        "spread",
    )

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
        self.atoms, self.scale, self.back, self.lane, self.size = atoms, scale, back, lane, size
        self.q, self.p, self.apart = products
        self.spread = spread
        """d · Var(‖x‖² / d), over draws of what came after the last norm."""
        self.differing = differing
        self.normed = normed
        self.centred = centred
        """True where the parts that are the same in every feature are not meant."""

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
        return max(0.0, self.q - self.p) if places is None else gap_of(
            self.products, places
        ), self.differing

    @property
    def coefficients(self) -> Array:
        """Of every atom up to the last one that the value has; by place, where they differ (size,
        K).
        """
        return self._by_place(self._dense(self.lane.forward if self.lane else None, self.scale))

    @property
    def gradient_coefficients(self) -> Array:
        """The same for gradients: a norm's factor has the mean of its inverse variance in it."""
        return self._by_place(self._dense(self.lane.back if self.lane else None, self.back))

    def covariance(self, other: "Moments") -> Products:
        """E⟨x, y⟩ / d with another value; of two places the mean over which of them is whose."""
        found = self.atoms.covariance(self.both(scaled=False)[0], other.both(scaled=False)[0])
        return scaled(found, self.scale, other.scale, self.atoms.places)

    def at(self, atom: int) -> tuple[Entry, Entry]:
        """Its coefficients of one part, and those of gradients."""
        if self.lane is None or atom >= self.size:
            return (self.scale, self.back) if atom == self.size - 1 else (0.0, 0.0)
        return self.lane.forward[atom] * self.scale, self.lane.back[atom] * self.back

    def _by_place(self, dense: Array) -> Array:
        places = self.atoms.places
        return (
            dense if places is None or dense.ndim == 2 else np.outer(dense, np.ones(places.count))
        )

    def both(self, *, scaled: bool = True) -> tuple[Array, Array]:
        """Of value and gradient, a number an atom where places have the same; `scaled` by what all
        of them have.
        """
        lane, scale, back = self.lane, self.scale if scaled else 1.0, self.back if scaled else 1.0
        return self._dense(lane and lane.forward, scale), self._dense(lane and lane.back, back)

    def _dense(self, held: Any, scale: Entry) -> Array:
        if held is None:
            dense = np.zeros((self.size, *np.shape(scale)))
            dense[-1] = scale
            return dense
        dense = first_of(held, self.size)
        dense = (
            np.outer(dense, scale)
            if dense.ndim == 1 and isinstance(scale, np.ndarray)
            else dense * scale
        )
        if self.centred:
            dense[[index for index in self.atoms.constant if index < self.size]] = 0.0
        return dense

    def times(self, factor: Entry, back: Entry, *, normed: bool) -> "Moments":
        """The value times `factor`, its gradient times `back`."""
        square, pair = squared(factor)
        products = (self.q * square, self.p * pair, self.apart * pair)
        spread, scale, back = (
            0.0 if normed else self.spread * square * square,
            self.scale * factor,
            self.back * back,
        )
        lane, size, differing = self.lane, self.size, self.differing
        return Moments(
            self.atoms, scale, back, lane, size, products, spread, differing, normed, self.centred
        )

    def __add__(self, other: "Moments | float") -> "Moments":
        if not isinstance(other, Moments):
            return (
                _sum(self, single(self.atoms, self.atoms.one()) * float(other)) if other else self
            )
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
    if (
        left.lane is None
        or right.lane is not None
        or right.size <= left.size
        or left.atoms.related[0]
    ):
        return _sum_in_common(left, right)
    # A branch meets the stream: no part in common, so squares add up.
    if left.normed:
        left.atoms.past_norms.add(right.size - 1)
    lane, scale, back, index = left.lane, left.scale, left.back, right.size - 1
    if not divides(scale, back):
        lane, scale, back = Lane(*left.both()), 1.0, 1.0
    forward, backward = right.scale / scale, right.back / back
    # Streams that start alike stay so for long: the others find what the first of them has
    # appended.
    if not lane.has(left.size, index, forward, backward):
        if len(lane.forward) != left.size:
            lane, scale, back, forward, backward = (
                Lane(*left.both()),
                1.0,
                1.0,
                right.scale,
                right.back,
            )
        lane.append(index, forward, backward)
    products = (left.q + right.q, left.p + right.p, left.apart + right.apart)
    spread = left.spread + right.spread + 4 * left.q * right.q
    differing = summed(left.differences, right.differences) if left.atoms.draws else RANDOM
    return Moments(
        left.atoms, scale, back, lane, right.size, products, spread, differing, centred=left.centred
    )


def _sum_in_common(left: Moments, right: Moments) -> Moments:
    alike = left.lane is right.lane is not None and (left.size, left.centred) == (
        right.size,
        right.centred,
    )
    if alike and divides(left.scale, left.back):
        scale, back = left.scale + right.scale, left.back + right.back
        square, pair = squared(scale / left.scale)
        products = Products(left.q * square, left.p * pair, left.apart * pair)
        spread = spread_in_common((left.q, left.spread), (right.q, right.spread), products.one)
        lane, size = left.lane, left.size
        return Moments(
            left.atoms,
            scale,
            back,
            lane,
            size,
            products,
            spread,
            left.differing,
            centred=left.centred,
        )
    (forward, back), (more, more_back) = left.both(), right.both()
    forward, back = added(forward, more), added(back, more_back)
    products = left.atoms.weighed(forward)
    spread = spread_in_common((left.q, left.spread), (right.q, right.spread), products.one)
    join = summed if left.lane is None or right.lane is None else of_both
    differing = join(left.differences, right.differences) if left.atoms.draws else RANDOM
    return Moments(
        left.atoms, 1.0, 1.0, Lane(forward, back), len(forward), products, spread, differing
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
