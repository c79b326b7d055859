"""Attention where each place has moments of its own: linear algebra over places of queries and places of keys."""

# K = places of queries, S = places of keys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from .mixing import Array, Entry, Products, softmax_apart, softmax_square, squared
from .places import RANDOM, ByPlace, Differing, Places, whole_of
from .sublayers import NOTHING_INSIDE, Map, Projection, _InsideF, inner_scales


def attention_by_place(
    x: Products,
    source: Products,
    *,
    width: int,
    places: Places,
    keys: Places,
    query_std: float,
    key_std: float,
    value_std: float,
    output_std: float,
    differing: Differing = RANDOM,
    inside: _InsideF = NOTHING_INSIDE,
) -> Map:
    """F(x) as `attention` has it, of queries at `places`, which see `keys`."""

    def projected(read: Products, std: float, name: str, at: Places) -> tuple[Products, tuple[Entry, Entry]]:
        into = width * std * std
        made = read.scaled(into)
        scales = squared(inner_scales(inside, name, width, made, places=at)[0]) if name in inside else (1.0, 1.0)
        return _by_scales(made, scales), scales

    value, value_scales = projected(source, value_std, "value", keys)
    draws = bool(query_std and key_std)
    query, query_scales = projected(x, query_std, "query", places) if draws else (x.scaled(0.0), (1.0, 1.0))
    key, key_scales = projected(source, key_std, "key", keys) if draws else (source.scaled(0.0), (1.0, 1.0))
    attending = _Attending(places, keys, query, key, value, width, differing)
    inputs = attending.forward()
    output_scales = (1.0, 1.0)
    if "output" in inside:
        output_scales = squared(inner_scales(inside, "output", width, inputs, places=places)[0])
        inputs = _by_scales(inputs, output_scales)
    out = width * output_std * output_std

    def through(
        back: Callable[[Products], Products], forward: Callable[[Array], Array], scales: tuple[Entry, Entry]
    ) -> ByPlace:
        return ByPlace(
            lambda g: _by_scales(back(_by_scales(g, output_scales)), scales),
            lambda changed: forward(changed * scales[1]) * output_scales[1],
        )

    to_value = through(
        lambda g: attending.to_value(g, out), lambda changed: attending.of_values(changed, out), value_scales
    )
    projections: tuple[Projection, ...] = (Projection("value", to_value, source, keys, width * value_std**2),)
    if draws:
        to_query = through(
            lambda g: Products(out * g.one * attending.passing.one, out * g.two * attending.passing.two),
            lambda changed: out * changed * whole_of(attending.passing),
            query_scales,
        )
        to_key = through(
            lambda g: attending.to_key(g, query, out),
            lambda changed: attending.of_keys(changed, query, out),
            key_scales,
        )
        projections += (
            Projection("query", to_query, x, places, width * query_std**2, True),
            Projection("key", to_key, source, keys, width * key_std**2),
        )
    output = inputs.scaled(out)
    silent = () if draws else ("query", "key")
    spread, logits = 4 * output.one * output.one, attending.variance
    return Map(
        output, spread, projections, silent, "output", inputs, width, variance=logits, differing=differing.attended()
    )


def _by_scales(products: Products, scales: tuple[Entry, Entry]) -> Products:
    one, two = scales
    return Products(products.one * one, products.two * two, products.apart * two)


@dataclass(frozen=True)
class _Attending:
    """Queries at some places, which see keys at others: weights that are uniform but for what logits do.

    Logits are Gaussian over W_Q and W_K, with the covariance of queries times that of keys. What they add to the
    products of weights is taken to first order, with all moments as they are, times how much more of the like a softmax
    over independent logits makes beyond the first order.
    """

    queries: Places
    keys: Places
    logits: Products
    """Covariance of queries, per unit of that of keys; 0 where nothing is drawn."""
    key: Products
    value: Products
    width: int
    differing: Differing = RANDOM

    def forward(self) -> Products:
        """Products of what is mixed."""
        plain, far = self._values.mixed, self.keys.seen @ self.value.apart @ self.keys.seen.T
        if not self._draws:
            return Products(plain.diagonal(), plain, far)
        more, grown = self._scattered(self._values), self._grown
        one = plain.diagonal() + self.logits.one * grown.one * more.diagonal()
        return Products(one, plain + self.logits.two * grown.two * more, far)

    def to_value(self, g: Products, factor: float) -> Products:
        """Gradients at what is mixed to those at values."""
        taken, grown = _taken(self.queries, self.keys), self._grown
        plain = taken.T @ self.queries.means(g.one, g.two) @ taken
        apart = taken.T @ np.broadcast_to(g.apart, (self.queries.count,) * 2) @ taken
        if not self._draws:
            return Products(plain.diagonal(), plain, apart).scaled(factor)
        both = Products(g.one * self.logits.one * grown.one, g.two * self.logits.two * grown.two)
        more = self._back(both, self._keys, self._over_queries(both, self._scattered(self._keys)))
        return Products(plain.diagonal() + more.one, plain + more.two, apart).scaled(factor)

    def of_values(self, changed: Array, factor: float) -> Array:
        """What changes of values make of what is mixed: of both their Gram matrix, or coefficients."""
        changes = self._seen(changed)
        more = whole_of(self.logits) * whole_of(self._grown) * self._together(changes, self._keys)
        return factor * (changes.mixed + more)

    def of_keys(self, changed: Array, query: Products, factor: float) -> Array:
        return factor * whole_of(query) * whole_of(self._passed) * self._together(self._values, self._seen(changed))

    def to_key(self, g: Products, query: Products, factor: float) -> Products:
        passed, passing = self._passed, self.passing
        both = Products(g.one * query.one, g.two * query.two)
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

        Both are made of the same tokens, of which inner products scatter by a d-th of their squares.
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
        """Σ_ii' g_ii' w_ij w_i'j' of two keys' x less the means of it that queries see: the adjoint of `_together`.

        total: what the products with the keys' own moments are to add up to, scatter and all.
        """
        taken, gram = _taken(self.queries, self.keys), self.queries.means(g.one, g.two)
        own = gram @ taken
        every = taken.T @ own
        one_sided = taken.T @ (x.left * own)
        rest = taken.T @ (gram * x.mixed) @ taken - one_sided - one_sided.T
        n = self.queries.tokens
        wide = float(n @ (gram * (self._keys_by_keys if x is self._keys else self._values_by_keys)) @ n)
        scatter = total / wide if wide else 1.0
        return Products(every.diagonal() * x.of.one + rest.diagonal(), every * x.of.two + rest).scaled(scatter)

    @cached_property
    def _sharp(self) -> tuple[Products, Products, Products, Products]:
        """Of one query and of two: how many keys they share, Σ w² over them, what it is without logits, and to first
        order beyond that."""
        shared, plain, first = _shared(self.queries, self.keys)
        gap = self._keys.gap * shared.one / np.maximum(shared.one - 1, 1)
        gaps = np.where(first, gap[:, None], gap)
        variance = Products(self.logits.one * gap, np.clip(self.logits.two * gaps, 0.0, None))
        square = Products(softmax_square(shared.one, variance.one), softmax_square(shared.two, variance.two))
        return shared, square, plain, variance

    @cached_property
    def _grown(self) -> Products:
        """By how much the first order in the logits' variance falls short."""
        if not self._draws:
            return self.logits.scaled(0.0)
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
    def passing(self) -> Products:
        """Of one query and of two, what `_apart` is for the weights as they are."""
        passed, (_, square, plain, _) = self._passed, self._sharp
        together = self._values_by_keys
        gaps = _ratio(1 - square.one, 1 - plain.one, 0.0) * np.sqrt(self._values.gap * self._keys.gap)
        scatter = np.outer(gaps, gaps) * self.differing.narrow / self.width
        found = Products(passed.one * together.diagonal() + scatter.diagonal(), passed.two * together + scatter)
        return found.scaled(self.differing.wider**2)

    @property
    def variance(self) -> Entry:
        """(K,) Of a query's logits over the keys that it sees."""
        return self._sharp[3].one if self._draws else 0.0

    @cached_property
    def _draws(self) -> bool:
        return bool(self.logits.one.any())


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
    """How many keys one query sees and two share, what Σ w² over them is without logits, and which sees no more."""
    single = len(keys.tokens) == 1
    counts = np.full(queries.count, int(keys.tokens[0])) if single else queries.keys.astype(int)
    shared = np.minimum.outer(counts, counts)
    return Products(counts, shared), Products(1 / counts, 1 / shared), np.less_equal.outer(counts, counts)
