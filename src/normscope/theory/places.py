"""The tokens of a sequence: the places where they stand, where each has moments of its own, and how
they differ.

A token at place t of a causal sequence sees t keys, so that the first tokens keep what the last
average away, and a norm divides each by its own size. Moments are therefore arrays: of a token at
each place, and of two tokens at each pair of places. Up to `MOST` tokens a place is a token. Of a
longer sequence it is a group of neighbours that are taken to be alike, longer the further back it
stands; all tokens of a memory, which are alike, are one place.

What a softmax passes on to its logits is a sum over pairs of tokens of ⟨x̃, x̃'⟩², x̃ a token less
their mean. It is as small as of random tokens only where they differ in as many directions as there
are features, and grows with the variance of ‖x̃‖² over draws.

The equations are T10 and T17 of docs/theory.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .mixing import Array, Entry, LinearMap, Products, between, make, vanishes

MOST = 64
"""Places of a sequence: what attention costs grows with their cube."""
_WIDEST = 1e30
"""Beyond thousands of blocks of a narrow model, whose tokens do not differ in float64 any more."""
_MATRICES_OF_VALUES = 2
"""W_V and W_O. Through a random matrix with d outputs the square of an inner product gains a d-th
of the product of both squares, so that each adds 1 to `Differing.narrow`. Equation T10.
"""
_LAST_MATRIX = 1
"""The same of W₂."""
_FIRST_MATRIX = 2
"""The same of W₁, over the units for each feature: half of the d_ff units are still, so that there
are d_ff / 2 directions. Equation T10.
"""
_WIDENED_BY = 1.5
"""Times the variance of a norm's square. E 1/s⁴ is 1 + 3 Var s² to second order about E s² = 1, and
a root grows by half of that. Equation T10.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The places of the tokens of one sequence, in their order."""

    tokens: Array
    """(K,) How many stand at each."""
    seen: Array
    """(K, K) What of a query's uniform attention each place has."""

    @property
    def count(self) -> int:
        """Returns the number K of places. Equation T17."""
        return len(self.tokens)

    @property
    def total(self) -> int:
        """Returns the number n of tokens. Equation T17."""
        return int(self.tokens.sum())

    @property
    def keys(self) -> "Array":
        """Returns (K,) how many keys a query sees, itself among them. Equation T17."""
        return np.rint(np.cumsum(self.tokens) - (self.tokens - 1) / 2)

    def filled(self, products: Products) -> tuple[Array, Array, Array]:
        """Returns moments as arrays, which may be given as one number for all places. Equation
        T17.
        """
        one, two, apart = products
        pairs = (self.count, self.count)
        return _filled(one, pairs[:1]), _filled(two, pairs), _filled(apart, pairs)

    def gathered(self, gram: Array) -> Products:
        """Returns moments by place of the inner products of all tokens of a sequence; two sequences
        have the same ones. Equations T17 and T22.
        """
        n = self.tokens
        # Sums over the tokens of a place, then means.
        first = np.cumsum(n).astype(int) - n.astype(int)
        sums = np.add.reduceat(np.add.reduceat(gram, first, 0), first, 1)
        apart = sums / np.outer(n, n)
        one = np.add.reduceat(np.diag(gram), first) / n
        # Of two tokens of one place: the mean over its pairs less those of a token with itself.
        two = apart.copy()
        np.fill_diagonal(two, (np.diag(apart) * n - one) / np.maximum(n - 1, 1))
        alone = n == 1
        two[alone, alone] = one[alone]
        return Products(one, two, apart)

    def means(self, one: Array, two: Array) -> Array:
        """Returns (K, K) the products of two places' means over their tokens: within a place of n
        tokens q / n + (1 − 1/n) p. Equation T17.
        """
        found: Array = two.copy()
        # A mean over n tokens meets itself in one of n.
        found.reshape(-1)[:: self.count + 1] += (one - two.diagonal()) / self.tokens
        return found

    def mean(self, products: Products) -> Products:
        """Returns moments over all tokens, and over all pairs of them. Equation T17."""
        one, two, apart = self.filled(products)
        n = self.tokens
        total = self.total
        single = float(n @ one) / total
        # Over all pairs, of a token with itself too: within a place only so many are such pairs.
        every = float(n @ two @ n + n @ (one - two.diagonal()))
        pairs = total * (total - 1)
        of_two = (every - total * single) / pairs if pairs else 0.0
        return Products(single, of_two, float(n @ apart @ n) / total**2)

    def sum(self, left: Products, right: Products) -> tuple[float, float]:
        """Returns Σ_ij left_ij right_ij over all tokens of a sequence, and over those of two
        sequences. Equations T11 and T17.
        """
        n = self.tokens
        two = left.two * right.two
        far = left.apart * right.apart
        within = n @ two @ n + n @ (left.one * right.one - two.diagonal())
        beyond = n @ far @ n if isinstance(far, np.ndarray) else far * n.sum() ** 2
        return float(within), float(beyond)


def _filled(entry: Entry, shape: tuple[int, ...]) -> Array:
    """Returns an entry as an array of that shape."""
    return entry if np.shape(entry) == shape else np.broadcast_to(entry, shape).astype(float)


@lru_cache(maxsize=16)
def causal(tokens: int) -> Places:
    """Returns the places of a sequence in which a token sees itself and those before it.

    Equation T17.
    """
    ends = (
        np.unique(np.rint(np.geomspace(1, tokens, 4 * MOST)))
        if tokens > MOST
        else np.arange(1.0, tokens + 1)
    )
    while len(ends) > MOST:
        # The narrowest step, by its share, goes.
        ends = np.delete(ends, 1 + np.argmin(ends[2:] / ends[:-2]))
    counts = np.diff(ends, prepend=0.0)
    # A query in the middle of its place sees half of that place, itself included.
    own = (counts + 1) / 2
    seen = np.tril(np.broadcast_to(counts, (len(counts), len(counts))), -1) + np.diag(own)
    return Places(counts, seen / seen.sum(1, keepdims=True))


@lru_cache(maxsize=16)
def alike(tokens: int, queries: int) -> Places:
    """Returns the place of a memory, which that many places of queries see as a whole. Equation
    T17. Equation T17.
    """
    return Places(np.array([float(tokens)]), np.ones((queries, 1)))


def scaled(covariance: Products, one: Entry, two: Entry, places: Places | None) -> Products:
    """Returns the covariance of values that are multiplied by two numbers; of two places the mean
    of both orders. Equations T1 and T18.
    """
    if places is None:
        return covariance.scaled(one * two)
    pair = np.outer(one * np.ones(places.count), two * np.ones(places.count))
    pair = (pair + pair.T) / 2
    return Products(covariance.one * one * two, covariance.two * pair, covariance.apart * pair)


class Factors(NamedTuple):
    """Multiplies gradients on their way back through a function of single features."""

    one: Array
    two: Array
    apart: Array | float

    def __call__(self, g: Products) -> Products:
        """Returns the gradients before the function. Equation T6."""
        return make(Products, (self.one * g.one, self.two * g.two, self.apart * g.apart))

    def forward(self, matrix: Array) -> Array:
        """Returns what the function makes of changes at its input: of their Gram matrix over
        tokens, or of coefficients. Equations T6 and T20.
        """
        return whole_of(Products(self.one, self.two)) * matrix


class ByPlace(NamedTuple):
    """The way of gradients back through attention, and of changes forward."""

    back: Callable[[Products], Products]
    forward: Callable[[Array], Array]
    """Returns what `Factors.forward` does, where a place is a token."""

    def __call__(self, g: Products) -> Products:
        """Returns the gradients before attention. Equation T9."""
        return self.back(g)


GradientMap = LinearMap | Factors | ByPlace
"""Maps gradients at the output of a function to those at its input."""


def whole_of(products: Products) -> Array:
    """Returns (K, K) the Gram matrix of tokens, where a place is a token. Equation T17."""
    found: Array = products.two.copy()
    np.fill_diagonal(found, products.one)
    return found


def gap_of(products: Products, places: Places | None) -> float:
    """Returns q − p: what a token has beyond what two have in common. Equation T10."""
    one, two, _ = products if places is None else places.mean(products)
    return max(0.0, float(one - two))


class Differing(NamedTuple):
    """Says how tokens differ, over all places together, beyond the size E‖x̃‖² / d = q − p of their
    differences.
    """

    narrow: float = 1.0
    """d · E⟨x̃, x̃'⟩² / (E‖x̃‖²)² of two tokens: d over the number of directions. 1 of random
    tokens.
    """
    wider: float = 1.0
    """The root mean square over draws of ‖x̃‖² over its mean."""
    past: float = 0.0
    """The part of √narrow that comes of the directions of what it was made of."""

    def attended(self) -> "Differing":
        """Returns how tokens differ in what attention makes of them, by two random matrices; each
        token mixes keys by weights of its own. Equation T10.
        """
        return make(Differing, (self.narrow + _MATRICES_OF_VALUES, self.wider, 0.0))

    def activated(self, share: float, hidden: float) -> "Differing":
        """Returns how tokens differ in what a feed-forward makes of them.

        share: of the square of what comes out, what slopes make of what goes in. hidden: units for
        each feature, of which half are still.

        Equation T10.
        """
        # What slopes let through keeps its directions; the matrices and the still units add
        # theirs.
        past = min(1.0, share) * math.sqrt(self.narrow)
        narrow = past * past + _LAST_MATRIX + _FIRST_MATRIX / hidden
        return make(Differing, (narrow, self.wider, past))

    def normed(self, scatter: float, common: float) -> "Differing":
        """Returns how tokens differ once each is divided by its size.

        scatter: relative variance of the size's square. common: the share of their square that
        tokens have in common; only as far as they do have they one size.

        Equation T10.
        """
        wider = self.wider * (1 + _WIDENED_BY * scatter * common * common)
        return make(Differing, (self.narrow, min(wider, _WIDEST), self.past))


RANDOM = Differing()


class Differences(NamedTuple):
    """Says what a token has beyond what two have in common."""

    gap: float
    """q − p: E‖x̃‖² / d, of which `Differing` says no more than a ratio."""
    differing: Differing


def summed(left: Differences, right: Differences) -> Differing:
    """Returns how tokens differ in a sum of two values without a part in common: what both have of
    the past adds up as it is, and all else in squares.

    With the shares a and b of q − p it is a² narrow + b² narrow' + 2 a b (1 + past past').

    Equation T10.
    """
    if not left.gap or not right.gap:
        return left.differing if left.gap else right.differing
    narrow, wider, past = left.differing
    other_narrow, other_wider, other_past = right.differing
    # Shares of what tokens differ by.
    share = left.gap / (left.gap + right.gap)
    rest = 1 - share
    # Products of both differences: a d-th of two random vectors, and more along common
    # directions.
    between_both = 2 * share * rest * (1 + past * other_past)
    narrow = share * share * narrow + rest * rest * other_narrow + between_both
    return make(Differing, (narrow, share * wider + rest * other_wider, math.sqrt(narrow)))


def of_both(left: Differences, right: Differences) -> Differing:
    """Returns how tokens differ in a sum of two streams that are made of the same parts: the mean
    of both, by their shares of q − p. Equation T10.
    """
    total = left.gap + right.gap
    share = left.gap / total if total else 0.5
    numbers = zip(left.differing, right.differing, strict=True)
    return Differing(*(share * one + (1 - share) * other for one, other in numbers))


def of_tokens(x: Array) -> Differing:
    """Returns how tokens differ that are given: (tokens, features).

    Of n random tokens Σ⟨x̃, x̃'⟩² over all pairs is 1 + n/d times what it is of as many that are
    orthogonal, so that tokens along one line (Σ is n − 1 times as large) have narrow near d.

    Equation T10.
    """
    n, width = x.shape
    # x̃, a token less what tokens share.
    x = x - x.mean(0)
    size = float((x * x).sum())
    squares = float(((x @ x.T) ** 2).sum())
    ratio = squares * (n - 1) / (size * size) if size else 1.0
    return Differing(max(0.0, ratio - 1) * width / n)


def repeated(same: float, width: int) -> Differing:
    """Returns how tokens differ that are random rows, of which two tokens have the same with
    probability `same`. Equation T10.
    """
    return Differing(1 + width * same / (1 - same) if same < 1 else 1.0)


def of_parts(squares: Array, parts: list[Differences]) -> Differing:
    """Returns how tokens differ in a sum of parts that have nothing in common, part a times
    √squares_a. Equation T10.
    """
    gaps = squares * np.array([part.gap for part in parts])
    narrower = np.array([part.differing.narrow - 1 for part in parts])
    more = float(gaps**2 @ narrower)
    narrow = 1 + more / float(gaps.sum()) ** 2 if gaps.any() else 1.0
    return Differing(narrow, 1.0, math.sqrt(narrow))


class Scatter(NamedTuple):
    """Says how large a value is, and how much that differs from draw to draw."""

    one: Entry
    """E‖x‖² / d."""
    spread: Entry
    """d · Var(‖x‖² / d), 2 q² of Gaussian features."""


def spread_in_common(left: Scatter, right: Scatter, total: Entry) -> Entry:
    """Returns the spread of a sum of two values that may have parts in common.

    It lies between that of independent values and that of one value taken twice, by the square of
    their correlation, which is a guess. total: the sum's E‖x‖² / d.

    Equation T4.
    """
    (one, spread), (other, other_spread) = left, right
    if vanishes(one) or vanishes(other):
        return spread + other_spread
    # q_(a+b) = q_a + q_b + 2 covariance.
    covariance = (total - one - other) / 2
    common = between(0.0, covariance * covariance / (one * other), 1.0)
    # Both spreads as parts of a Gaussian's, which is 2 q².
    missing = 2 * one * one - spread + 2 * other * other - other_spread
    # As parts of 2 q², at either end of what is known.
    if_independent = 1 - missing / (2 * (one + other) ** 2)
    if_the_same = (spread / (one * one) + other_spread / (other * other)) / 4
    found = 2 * total * total * ((1 - common) * if_independent + common * if_the_same)
    return between(0.0, found, math.inf)
