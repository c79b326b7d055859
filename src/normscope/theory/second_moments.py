"""Second moments of the parts that a stack's values are sums of.

A value with the coefficients c has the square Σ_ab c_a c_b E⟨a, b⟩ / d over all parts a and b.
Parts that come of different matrices are independent, so that only their squares stand in it; those
that one matrix has made in several passes have a covariance as well.

The equations are T1 and T18 of docs/theory.md.
"""

from array import array
from typing import Any

import numpy as np

from .lanes import first_of, growing, weighed
from .mixing import Array, Entry, Products, make
from .places import RANDOM, Differing, Places


class SecondMoments:
    """Second moments of all parts so far, in the order in which they came to be."""

    def __init__(
        self, width: int, *, scatter_width: float | None = None, places: Places | None = None
    ) -> None:
        self.width = width
        self.places = places
        """The places of a sequence, where they differ: all moments are arrays then."""
        self.scatter_width = width if scatter_width is None else scatter_width
        """That a norm's divisor scatters with: infinite where it does not."""
        self.draws = True
        """True where logits are drawn, which depend on how tokens differ; else nothing asks for
        that.
        """
        self.count = 0
        self._products = growing(places)
        self._covariances = growing(places)
        self.related = array("q"), array("q")
        """Pairs of parts that came of one matrix and have covariances; parts have none else."""
        self.spreads: Any = array("d") if places is None else []
        """d · Var ‖a‖² / d² of each."""
        self.differing: list[Differing] = []
        self.constant: list[int] = []
        """Parts that are the same in every feature, which LayerNorm takes off."""
        self.normed_parts: set[int] = set()
        """Parts that a norm has read alone, such as F(x) before it joins a stream."""
        self._one: int | None = None

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
        """Adds a part, and returns its index.

        spread: d · Var(‖a‖² / d), by default 2 q², as of Gaussian features. centred: False for a
        part that is the same in every feature.

        Equations T1 and T4.
        """
        self.differing.append(differing if self.draws else RANDOM)
        # By place, all moments are arrays.
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
        """Returns the part that is 1 in every feature of every token, made where it is first asked
        for. Equation T1.
        """
        if self._one is None:
            self._one = self.add(1.0, 1.0, 1.0, spread=0.0, centred=False)
        return self._one

    def products(self, index: int) -> Products:
        """Returns q, p and apart of a part. Equation T1."""
        one, two, three = self._products
        return make(Products, (one[index], two[index], three[index]))

    @property
    def squares(self) -> Array:
        """Returns (parts,) E‖a‖² / d of each part. Equation T1."""
        return first_of(self._products[0], self.count)

    def relate(self, left: int, right: int, covariance: Products) -> None:
        """Gives two parts that one matrix has made a covariance. Equation T18."""
        filled = covariance if self.places is None else self.places.filled(covariance)
        for held, part in zip(self.related, (left, right), strict=True):
            held.append(part)
        for held, entry in zip(self._covariances, filled, strict=True):
            held.append(entry)

    def weighed(self, coefficients: Array) -> Products:
        """Returns the moments of Σ_a c_a a, whose coefficients are (size,) where all places have
        the same, else (size, K). Equation T1.
        """
        if self.related[0]:
            return self.covariance(coefficients, coefficients)
        return weighed(coefficients, coefficients, self._products)

    def covariance(self, left: Array, right: Array) -> Products:
        """Returns E⟨x, y⟩ / d of two values with these coefficients; of two places the mean of both
        orders. Equation T18.
        """
        if left.ndim != right.ndim:
            left, right = left.reshape(len(left), -1), right.reshape(len(right), -1)
        left, right = self._filled(left), self._filled(right)
        # Σ_a c_a c'_a of the parts' own moments,
        found = weighed(left, right, self._products)
        # and of pairs that one matrix has made, either way round.
        pairs = [np.frombuffer(each, np.int64) for each in self.related]
        for first, second in (pairs, pairs[::-1]):
            found = found.plus(weighed(left[first], right[second], self._covariances))
        if self.places is None:
            return found
        one, two, apart = found
        return Products(one, (two + two.T) / 2, (apart + apart.T) / 2)

    def _filled(self, coefficients: Array) -> Array:
        """Returns coefficients with a 0 for each of the parts that a value does not have. Equation
        T1.
        """
        missing = (self.count - len(coefficients), *coefficients.shape[1:])
        return np.concatenate([coefficients, np.zeros(missing)])

    def shares(self, coefficients: Array) -> Array:
        """Returns what each part is of E‖x‖² / d, as `squares` is: half of what two parts have in
        common counts for each. Equations T1 and T18.
        """
        coefficients = self._filled(coefficients)
        squares = coefficients**2 * self.squares
        first, second = (np.frombuffer(each, np.int64) for each in self.related)
        covariances = first_of(self._covariances[0], len(first))
        common = coefficients[first] * coefficients[second] * covariances
        # Half of 2 c_a c_b E⟨a, b⟩ for either.
        for part in (first, second):
            np.add.at(squares, part, common)
        return squares
