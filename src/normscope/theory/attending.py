"""What attention mixes, and gradients back through it: of tokens that are alike, and of places with
their own moments.

There it is linear algebra over places of queries and places of keys.

The equations are T7 to T10 and T17 of docs/theory.md.
"""

# K = places of queries, S = places of keys
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np

from .mixing import (
    Array,
    Entry,
    LinearMap,
    Mixing,
    Products,
    make,
    sharpened,
    softmax_apart,
    softmax_square,
)
from .places import ByPlace, Differing, Places, whole_of


class _Alike:
    """Tokens that all are alike, so many queries of so many keys."""

    def __init__(
        self,
        queries: int,
        keys: int,
        query: Products,
        key: Products,
        value: Products,
        width: int,
        differing: Differing,
    ) -> None:
        self.queries = queries
        self.keys = keys
        self.query = query
        self.value = value
        self.differing = differing
        self.common = differing.narrow / width
        # A logit q·k/√K has the variance q_q q_k over random matrices; what all keys share moves no
        # weight.
        self.apart_keys = max(0.0, key.one - key.two) * differing.wider
        self.variance = query.one * self.apart_keys
        self.draws = bool(self.variance)
        self.weights = sharpened(keys, self.variance, query.two * self.apart_keys, self.common)

    def forward(self) -> Products:
        """Products of what is mixed."""
        return self.weights.forward(self.value)

    def back(self, factor: float) -> tuple[LinearMap, LinearMap, LinearMap]:
        """From gradients at what is mixed, times the factor, to those at values, at queries and at
        keys.

        A logit z_ij has the gradient w_ij g_i·(v_j - Σ_k w_ik v_k), which vanishes where values are
        alike. A query's is Σ_j of that times k_j less the keys' mean; a key's Σ_i of that times
        q_i, and over all keys they add up to 0. Values and keys are made of the same tokens, of
        which m in so many directions are not orthogonal: the share `common` of (Σ_j w_j (1 - w_j))²
        is left on average.

        Equation T9.
        """
        n = self.queries
        m = self.keys
        weights = self.weights
        wider = self.differing.wider
        to_value = gradient_at_values(weights, n, m, factor)
        if not self.draws:
            return to_value, _NO_MAP, _NO_MAP
        apart_values = max(0.0, self.value.one - self.value.two) * wider * factor
        scatter, own = self.common * (1 - weights.self_one) ** 2, 1 + self.common
        one, two = (
            apart_values * (part * own + scatter) for part in (weights.apart_one, weights.apart_two)
        )
        to_query = LinearMap(one * self.apart_keys, 0.0, 0.0, two * self.apart_keys, 0.0)
        own, others = (
            n / m * one * self.query.one * wider,
            n * (n - 1) / m * two * self.query.two * wider,
        )
        left = -1 / (m - 1) if m > 1 else 0.0
        return to_value, to_query, LinearMap(own, others, own * left, others * left, 0.0)


_NO_MAP = LinearMap(0.0, 0.0, 0.0, 0.0, 0.0)


def gradient_at_values(weights: Mixing, n: int, m: int, factor: float) -> LinearMap:
    """Each key's share of the gradients of all queries: the transpose of the mixing.

    The shares are Σ_j w_ij w_i'j, over one key, for one query and for two; over two keys it is what
    is left of 1.

    Equation T9.
    """
    one, two = weights.self_one, weights.self_two
    mine = factor * n / m
    theirs = mine / (m - 1) if m > 1 else 0.0
    entries = (
        mine * one,
        mine * (n - 1) * two,
        theirs * (1 - one),
        theirs * (n - 1) * (1 - two),
        mine * n / m,
    )
    return make(LinearMap, entries)


@dataclass(frozen=True)
class _AtPlaces:
    """Queries at some places, which see keys at others: weights that are uniform but for what
    logits do.

    Logits are Gaussian over W_Q and W_K, with the covariance of queries times that of keys. What
    they add to the products of weights is taken to first order, with all moments as they are, times
    how much more of the like a softmax over independent logits makes beyond the first order.
    """

    queries: Places
    keys: Places
    query: Products
    """0 where nothing is drawn."""
    key: Products
    value: Products
    width: int
    differing: Differing

    def forward(self) -> Products:
        """Products of what is mixed."""
        plain, far = self._values.mixed, self.keys.seen @ self.value.apart @ self.keys.seen.T
        if not self.draws:
            return Products(plain.diagonal(), plain, far)
        more, grown = self._scattered(self._values), self._grown
        one = plain.diagonal() + self.query.one * grown.one * more.diagonal()
        return Products(one, plain + self.query.two * grown.two * more, far)

    def back(self, factor: float) -> tuple[ByPlace, ByPlace, ByPlace]:
        """From gradients at what is mixed, times the factor, to those at values, at queries and at
        keys.
        """
        return (
            ByPlace(partial(self._to_value, factor), partial(self._of_values, factor)),
            ByPlace(
                lambda g: Products(
                    factor * g.one * self._passing.one, factor * g.two * self._passing.two
                ),
                lambda changed: factor * changed * whole_of(self._passing),
            ),
            ByPlace(partial(self._to_key, factor), partial(self._of_keys, factor)),
        )

    def _to_value(self, factor: float, g: Products) -> Products:
        """Gradients at what is mixed to those at values."""
        taken = _taken(self.queries, self.keys)
        plain = taken.T @ self.queries.means(g.one, g.two) @ taken
        apart = taken.T @ np.broadcast_to(g.apart, (self.queries.count,) * 2) @ taken
        if not self.draws:
            return Products(plain.diagonal(), plain, apart).scaled(factor)
        grown = self._grown
        both = Products(g.one * self.query.one * grown.one, g.two * self.query.two * grown.two)
        more = self._back(both, self._keys, self._over_queries(both, self._scattered(self._keys)))
        return Products(plain.diagonal() + more.one, plain + more.two, apart).scaled(factor)

    def _of_values(self, factor: float, changed: Array) -> Array:
        """What changes of values make of what is mixed: of both their Gram matrix, or
        coefficients.
        """
        changes = self._seen(changed)
        if not self.draws:
            return factor * changes.mixed
        more = whole_of(self.query) * whole_of(self._grown) * self._together(changes, self._keys)
        return factor * (changes.mixed + more)

    def _of_keys(self, factor: float, changed: Array) -> Array:
        passed = whole_of(self.query) * whole_of(self._passed)
        return factor * passed * self._together(self._values, self._seen(changed))

    def _to_key(self, factor: float, g: Products) -> Products:
        passed, passing = self._passed, self._passing
        both = Products(g.one * self.query.one, g.two * self.query.two)
        wide = Products(both.one * passed.one, both.two * passed.two)
        total = self._over_queries(Products(both.one * passing.one, both.two * passing.two), 1.0)
        return self._back(wide, self._values, total).scaled(factor)

    @cached_property
    def _values(self) -> "_Seen":
        return self._seen(self.value)

    @cached_property
    def _keys(self) -> "_Seen":
        return self._values if self.key is self.value else self._seen(self.key)

    @cached_property
    def _values_by_keys(self) -> Array:
        return self._together(self._values, self._keys)

    @cached_property
    def _keys_by_keys(self) -> Array:
        return self._together(self._keys, self._keys)

    def _seen(self, x: Products | Array) -> "_Seen":
        """Of moments, or of coefficients of a change, which are not the same both ways."""
        seen = self.keys.seen
        products = x if isinstance(x, Products) else Products(x.diagonal(), x)
        means = self.keys.means(products.one, products.two)
        left = seen @ means
        mixed = left @ seen.T
        if products is not x:
            return _Seen(products, left, means @ seen.T, mixed, left)
        gap = np.maximum(seen @ products.one - (left * seen).sum(1), 0.0)
        return _Seen(products, left, left.T, mixed, gap)

    def _scattered(self, values: "_Seen") -> Array:
        """(K, K) Σ_jj' w_ij w_i'j' of values less their mean, times keys less theirs.

        Both are made of the same tokens, of which inner products scatter by a d-th of their
        squares.
        """
        wide = self._keys_by_keys if values is self._keys else self._values_by_keys
        gaps = np.sqrt(values.gap * self._keys.gap)
        return wide + np.outer(gaps, gaps) * self.differing.narrow / self.width

    def _together(self, value: "_Seen", key: "_Seen") -> Array:
        """The same of wide tokens."""
        seen, (values, keys) = self.keys.seen, (value.of, key.of)
        every = seen @ self.keys.means(values.one * keys.one, values.two * keys.two) @ seen.T
        found: Array = every - (value.left * key.left) @ seen.T - seen @ (value.right * key.right)
        return found + value.mixed * key.mixed

    def _over_queries(self, g: Products, by: Array | float) -> float:
        n = self.queries.tokens
        return float(n @ (self.queries.means(g.one, g.two) * by) @ n)

    def _back(self, g: Products, x: "_Seen", total: float) -> Products:
        """Σ_ii' g_ii' w_ij w_i'j' of two keys' x less the means of it that queries see: the adjoint
        of `_together`.

        total: what the products with the keys' own moments are to add up to, scatter and all.
        """
        taken, gram = _taken(self.queries, self.keys), self.queries.means(g.one, g.two)
        own = gram @ taken
        every = taken.T @ own
        one_sided = taken.T @ (x.left * own)
        rest = taken.T @ (gram * x.mixed) @ taken - one_sided - one_sided.T
        n = self.queries.tokens
        wide = float(
            n @ (gram * (self._keys_by_keys if x is self._keys else self._values_by_keys)) @ n
        )
        scatter = total / wide if wide else 1.0
        return Products(
            every.diagonal() * x.of.one + rest.diagonal(), every * x.of.two + rest
        ).scaled(scatter)

    @cached_property
    def _sharp(self) -> tuple[Products, Products, Products, Products]:
        """Of one query and of two: how many keys they share, Σ w² over them, what it is without
        logits, and to first order beyond that."""
        shared, plain, first = _shared(self.queries, self.keys)
        gap = self._keys.gap * shared.one / np.maximum(shared.one - 1, 1)
        gaps = np.where(first, gap[:, None], gap)
        variance = Products(self.query.one * gap, np.clip(self.query.two * gaps, 0.0, None))
        square = Products(
            softmax_square(shared.one, variance.one), softmax_square(shared.two, variance.two)
        )
        return shared, square, plain, variance

    @cached_property
    def _grown(self) -> Products:
        """By how much the first order in the logits' variance falls short."""
        _, square, plain, variance = self._sharp
        return Products(
            *(
                _ratio(grown - least, more * (1 - least) * least, 1e-9 * least)
                for grown, least, more in list(zip(square, plain, variance, strict=True))[:2]
            )
        )

    @cached_property
    def _passed(self) -> Products:
        """How much more than uniform weights the softmax lets through to its logits."""
        shared, _, plain, variance = self._sharp
        return Products(
            *(
                _ratio(softmax_apart(keys, more), least * (1 - least), 0.0)
                for keys, least, more in list(zip(shared, plain, variance, strict=True))[:2]
            )
        )

    @cached_property
    def _passing(self) -> Products:
        """Of one query and of two, for the weights as they are: what `softmax_apart` is of
        independent logits.
        """
        passed, (_, square, plain, _) = self._passed, self._sharp
        together = self._values_by_keys
        gaps = _ratio(1 - square.one, 1 - plain.one, 0.0) * np.sqrt(
            self._values.gap * self._keys.gap
        )
        scatter = np.outer(gaps, gaps) * self.differing.narrow / self.width
        found = Products(
            passed.one * together.diagonal() + scatter.diagonal(), passed.two * together + scatter
        )
        return found.scaled(self.differing.wider**2)

    @property
    def variance(self) -> Entry:
        """(K,) Of a query's logits over the keys that it sees."""
        return self._sharp[3].one if self.draws else np.zeros(self.queries.count)

    @cached_property
    def draws(self) -> bool:
        return bool(np.any(self.query.one))


def _ratio(part: Array, of: Array, least: Array | float) -> Array:
    """1 where there is next to nothing of it."""
    return np.divide(part, of, out=np.ones_like(of), where=of > least)


class _Seen(NamedTuple):
    """Moments of keys' tokens, and means of them that queries see."""

    of: Products
    left: Array
    """(K, S) Of the first token alone."""
    right: Array
    """(S, K) Of the second."""
    mixed: Array
    """(K, K) Of both."""
    gap: Array
    """(K,) Σ_j w_ij ‖x_j‖² less the mean's own square, of moments."""


@lru_cache(maxsize=32)
def _taken(queries: Places, keys: Places) -> Array:
    """(K, S) What each single key has of all queries of a place."""
    return queries.tokens[:, None] * keys.seen / keys.tokens


@lru_cache(maxsize=32)
def _shared(queries: Places, keys: Places) -> tuple[Products, Products, Array]:
    """How many keys one query sees and two share, what Σ w² over them is without logits, and which
    sees no more.
    """
    single = len(keys.tokens) == 1
    counts = np.full(queries.count, int(keys.tokens[0])) if single else queries.keys.astype(int)
    shared = np.minimum.outer(counts, counts)
    return (
        Products(counts, shared),
        Products(1 / counts, 1 / shared),
        np.less_equal.outer(counts, counts),
    )
