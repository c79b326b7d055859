"""The places of a causal sequence, each with moments of its own.

A token at place t sees t keys, so that the first tokens keep what the last ones average away, and a norm divides each
by its own size. Moments are therefore arrays: of a token at each place, and of two tokens at each pair of places. Up
to `MOST` tokens a place is a token. Of a longer sequence it is a group of neighbours that are taken to be alike, longer
the further back it stands; all tokens of a memory, which are alike, are one place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .mixing import Array, Entry, LinearMap, Products, make

MOST = 64
"""Places of a sequence: what attention costs grows with their cube."""


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
        apart = np.add.reduceat(np.add.reduceat(gram, first, 0), first, 1) / np.outer(self.tokens, self.tokens)
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
        return Products(single, (every - total * single) / pairs if pairs else 0.0, float(n @ apart @ n) / total**2)

    def sum(self, left: Products, right: Products) -> tuple[float, float]:
        """Σ_ij left_ij right_ij over all tokens of a sequence, and over those of two sequences."""
        n, two, far = self.tokens, left.two * right.two, left.apart * right.apart
        within = n @ two @ n + n @ (left.one * right.one - two.diagonal())
        return float(within), float(n @ far @ n if isinstance(far, np.ndarray) else far * n.sum() ** 2)


def _filled(entry: Entry, shape: tuple[int, ...]) -> Array:
    return entry if np.shape(entry) == shape else np.broadcast_to(entry, shape).astype(float)


@lru_cache(maxsize=16)
def causal(tokens: int) -> Places:
    """Of a sequence in which a token sees itself and those before it."""
    ends = np.unique(np.rint(np.geomspace(1, tokens, 4 * MOST))) if tokens > MOST else np.arange(1.0, tokens + 1)
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


class Factors(NamedTuple):
    """What multiplies gradients on their way back through a function of single features."""

    one: Array
    two: Array
    apart: Array | float

    def __call__(self, g: Products) -> Products:
        return make(Products, (self.one * g.one, self.two * g.two, self.apart * g.apart))

    def forward(self, matrix: Array) -> Array:
        """What the function makes of changes at its input: their Gram matrix over tokens, or coefficients."""
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
