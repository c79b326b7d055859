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


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Of the tokens of one sequence, in their order."""

    tokens: Array
    """(K,) How many stand at each."""
    seen: Array
    """(K, K) What of a query's uniform attention each place has."""

    @property
    def count(self) -> int:
        return len(self.tokens)

    @property
    def total(self) -> int:
        return int(self.tokens.sum())

    @property
    def keys(self) -> "Array":
        """(K,) How many keys a query sees, itself among them."""
        return np.rint(np.cumsum(self.tokens) - (self.tokens - 1) / 2)

    def filled(self, products: Products) -> tuple[Array, Array, Array]:
        """Moments that may be the same at all places, as arrays."""
        one, two, apart = products
        pairs = (self.count, self.count)
        return _filled(one, pairs[:1]), _filled(two, pairs), _filled(apart, pairs)

    def gathered(self, gram: Array) -> Products:
        """Of the inner products of all tokens of a sequence, of which another one has the same."""
        first = np.cumsum(self.tokens).astype(int) - self.tokens.astype(int)
        apart = np.add.reduceat(np.add.reduceat(gram, first, 0), first, 1) / np.outer(
            self.tokens, self.tokens
        )
        one = np.add.reduceat(np.diag(gram), first) / self.tokens
        rest = np.maximum(self.tokens - 1, 1)
        two = apart.copy()
        np.fill_diagonal(two, (np.diag(apart) * self.tokens - one) / rest)
        two[self.tokens == 1, self.tokens == 1] = one[self.tokens == 1]
        return Products(one, two, apart)

    def means(self, one: Array, two: Array) -> Array:
        """(K, K) Of the products of two places' means over their tokens."""
        found: Array = two.copy()
        found.reshape(-1)[:: self.count + 1] += (one - two.diagonal()) / self.tokens
        return found

    def mean(self, products: Products) -> Products:
        """Over all tokens, and over all pairs of them."""
        one, two, apart = self.filled(products)
        n, total = self.tokens, self.total
        single = float(n @ one) / total
        pairs = total * (total - 1)
        every = float(n @ two @ n + n @ (one - two.diagonal()))
        return Products(
            single,
            (every - total * single) / pairs if pairs else 0.0,
            float(n @ apart @ n) / total**2,
        )

    def sum(self, left: Products, right: Products) -> tuple[float, float]:
        """Σ_ij left_ij right_ij over all tokens of a sequence, and over those of two sequences."""
        n = self.tokens
        two = left.two * right.two
        far = left.apart * right.apart
        within = n @ two @ n + n @ (left.one * right.one - two.diagonal())
        return float(within), float(
            n @ far @ n if isinstance(far, np.ndarray) else far * n.sum() ** 2
        )


def _filled(entry: Entry, shape: tuple[int, ...]) -> Array:
    return entry if np.shape(entry) == shape else np.broadcast_to(entry, shape).astype(float)


@lru_cache(maxsize=16)
def causal(tokens: int) -> Places:
    """Of a sequence in which a token sees itself and those before it.

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
    own = (counts + 1) / 2
    seen = np.tril(np.broadcast_to(counts, (len(counts), len(counts))), -1) + np.diag(own)
    return Places(counts, seen / seen.sum(1, keepdims=True))


@lru_cache(maxsize=16)
def alike(tokens: int, queries: int) -> Places:
    """Of a memory, which that many places of queries see as a whole."""
    return Places(np.array([float(tokens)]), np.ones((queries, 1)))


def scaled(covariance: Products, one: Entry, two: Entry, places: Places | None) -> Products:
    """Of values that are multiplied with these numbers, of two places the mean over which of them
    is whose.
    """
    if places is None:
        return covariance.scaled(one * two)
    pair = np.outer(one * np.ones(places.count), two * np.ones(places.count))
    pair = (pair + pair.T) / 2
    return Products(covariance.one * one * two, covariance.two * pair, covariance.apart * pair)


class Factors(NamedTuple):
    """What multiplies gradients on their way back through a function of single features."""

    one: Array
    two: Array
    apart: Array | float

    def __call__(self, g: Products) -> Products:
        return make(Products, (self.one * g.one, self.two * g.two, self.apart * g.apart))

    def forward(self, matrix: Array) -> Array:
        """What the function makes of changes at its input: their Gram matrix over tokens, or
        coefficients.
        """
        return whole_of(Products(self.one, self.two)) * matrix


class ByPlace(NamedTuple):
    """The way of gradients back through attention, and of changes forward."""

    back: Callable[[Products], Products]
    forward: Callable[[Array], Array]
    """As of `Factors`, where a place is a token."""

    def __call__(self, g: Products) -> Products:
        return self.back(g)


GradientMap = LinearMap | Factors | ByPlace
"""From gradients at one end of a map to those at the other."""


def whole_of(products: Products) -> Array:
    """(K, K) The Gram matrix of tokens, where a place is a token."""
    found: Array = products.two.copy()
    np.fill_diagonal(found, products.one)
    return found


def gap_of(products: Products, places: Places | None) -> float:
    """What a token has beyond what two have in common."""
    one, two, _ = products if places is None else places.mean(products)
    return max(0.0, float(one - two))


class Differing(NamedTuple):
    """Of all places together, beyond E‖x̃‖² / d, which is q − p."""

    narrow: float = 1.0
    """d · E⟨x̃, x̃'⟩² / (E‖x̃‖²)² of two tokens: d over the number of directions. 1 of random
    tokens.
    """
    wider: float = 1.0
    """The root mean square over draws of ‖x̃‖² over its mean."""
    past: float = 0.0
    """Of the root of `narrow`, what comes of the directions of what it was made of."""

    def attended(self) -> "Differing":
        """What attention makes of it, by two random matrices; other tokens are mixed for each
        token.

        Equation T10.
        """
        return make(Differing, (self.narrow + 2, self.wider, 0.0))

    def activated(self, share: float, hidden: float) -> "Differing":
        """What a feed-forward makes of it.

        share: of the square of what comes out, what slopes make of what goes in. hidden: units for
        each feature, of which half are still.

        Equation T10.
        """
        past = min(1.0, share) * math.sqrt(self.narrow)
        return make(Differing, (past * past + 1 + 2 / hidden, self.wider, past))

    def normed(self, scatter: float, common: float) -> "Differing":
        """Divided by a size whose square has that relative variance; tokens have that share of
        their square in common.

        E 1/s⁴ is 1 + 3 Var s², as far as tokens have one size.

        Equation T10.
        """
        wider = self.wider * (1 + 1.5 * scatter * common * common)
        return make(Differing, (self.narrow, min(wider, _WIDEST), self.past))


RANDOM = Differing()


def summed(left: tuple[float, Differing], right: tuple[float, Differing]) -> Differing:
    """Of a sum without a part in common: what both have of the past adds up as it is, all else in
    squares.
    """
    (gap, one), (other_gap, other) = left, right
    if not gap or not other_gap:
        return one if gap else other
    (narrow, wider, past), (more, more_wider, more_past) = one, other
    share = gap / (gap + other_gap)
    rest = 1 - share
    narrow = share * share * narrow + rest * rest * more + 2 * share * rest * (1 + past * more_past)
    return make(Differing, (narrow, share * wider + rest * more_wider, math.sqrt(narrow)))


def of_both(left: tuple[float, Differing], right: tuple[float, Differing]) -> Differing:
    """Of streams that are made of the same parts: the mean."""
    (gap, one), (other_gap, other) = left, right
    share = gap / (gap + other_gap) if gap + other_gap else 0.5
    return Differing(
        *(share * part + (1 - share) * more for part, more in zip(one, other, strict=True))
    )


def of_tokens(x: Array) -> Differing:
    """Of (tokens, features) as they are.

    Of random tokens Σ⟨x̃, x̃'⟩² over all pairs is 1 + n/d times what it is of as many that are
    orthogonal.
    """
    n, width = x.shape
    x = x - x.mean(0)
    size = float((x * x).sum())
    ratio = float(((x @ x.T) ** 2).sum()) * (n - 1) / (size * size) if size else 1.0
    return Differing(max(0.0, ratio - 1) * width / n)


def repeated(same: float, width: int) -> Differing:
    """Of random rows, of which two tokens may have the same."""
    return Differing(1 + width * same / (1 - same) if same < 1 else 1.0)


def of_parts(squares: Array, parts: list[tuple[float, Differing]]) -> Differing:
    """Of a sum of parts that have nothing in common, each times the root of one of these."""
    gaps = squares * np.array([gap for gap, _ in parts])
    more = float(gaps**2 @ np.array([part.narrow - 1 for _, part in parts]))
    narrow = 1 + more / float(gaps.sum()) ** 2 if gaps.any() else 1.0
    return Differing(narrow, 1.0, math.sqrt(narrow))


def spread_in_common(left: tuple[Entry, Entry], right: tuple[Entry, Entry], q: Entry) -> Entry:
    """d · Var ‖x‖² / d² of a sum of that q, of two values' q and spread.

    Between that of independent values and that of one value taken twice, by their squared
    correlation.

    Equation T4.
    """
    (one, spread), (other, more) = left, right
    if vanishes(one) or vanishes(other):
        return spread + more
    together = (q - one - other) / 2
    common = between(0.0, together * together / (one * other), 1.0)
    still = 2 * one * one - spread + 2 * other * other - more
    apart = 1 - still / (2 * (one + other) ** 2)
    same = (spread / (one * one) + more / (other * other)) / 4
    return between(0.0, 2 * q * q * ((1 - common) * apart + common * same), math.inf)
