"""Attention on moments, and gradients back through it, where places have moments of their own.

There it is linear algebra over places of queries and places of keys; of tokens that are all alike
`alike.py` says the same in numbers.

The equations are T7 to T10 and T17 of docs/theory.md.
"""

# K = places of queries, S = places of keys
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np

from ..mixing import Array, Entry, Products, softmax_apart, softmax_square
from ..places import ByPlace, Differing, Places, whole_of


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
        """Returns the products of what queries at places have mixed. Equations T7 and T17."""
        # Uniform weights first: products of means over the keys that two queries see.
        uniform = self._values.of_both
        far = self.keys.seen @ self.value.apart @ self.keys.seen.T
        if not self.draws:
            return Products(uniform.diagonal(), uniform, far)
        # Logits move weights by ⟨q, k_j − k̄⟩, so that what they add is the product of centred
        # keys and centred values, times that of the queries.
        more = self._centred_with_scatter(self._values)
        beyond = self._beyond_first_order
        one = uniform.diagonal() + self.query.one * beyond.one * more.diagonal()
        two = uniform + self.query.two * beyond.two * more
        return Products(one, two, far)

    def back(self, factor: float) -> tuple[ByPlace, ByPlace, ByPlace]:
        """Returns the maps of gradients at what is mixed, times the factor, to those at values, at
        queries and at keys. Equations T9 and T17.
        """
        return (
            ByPlace(partial(self._to_value, factor), partial(self._of_values, factor)),
            ByPlace(partial(self._to_query, factor), partial(self._of_queries, factor)),
            ByPlace(partial(self._to_key, factor), partial(self._of_keys, factor)),
        )

    def _to_value(self, factor: float, g: Products) -> Products:
        """Returns gradients at values, of gradients at what is mixed. Equations T9 and T17."""
        # The transpose of the uniform weights, summed over all queries.
        shares = _shares_of_keys(self.queries, self.keys)
        uniform = shares.T @ self.queries.means(g.one, g.two) @ shares
        apart = shares.T @ np.broadcast_to(g.apart, (self.queries.count,) * 2) @ shares
        if not self.draws:
            return Products(uniform.diagonal(), uniform, apart).scaled(factor)
        # And the transpose of what logits add, scaled to the total that its forward side has.
        at_weights = _times(g, self.query, self._beyond_first_order)
        total = self._over_queries(at_weights, self._centred_with_scatter(self._keys))
        more = self._centred_back(at_weights, self._keys, total)
        found = Products(uniform.diagonal() + more.one, uniform + more.two, apart)
        return found.scaled(factor)

    def _of_values(self, factor: float, changed: Array) -> Array:
        """Returns what changes of values make of what is mixed: of their Gram matrix, or of
        coefficients of gradients. Equations T17 and T20.
        """
        changes = self._averaged(changed)
        if not self.draws:
            return factor * changes.of_both
        weighed = whole_of(self.query) * whole_of(self._beyond_first_order)
        more = weighed * self._centred(changes, self._keys)
        return factor * (changes.of_both + more)

    def _to_query(self, factor: float, g: Products) -> Products:
        """Returns gradients at queries, of gradients at what is mixed. Equations T9 and T17."""
        # Two queries pass on what their gradients have in common, times U₂.
        passing = self._passing
        return Products(factor * g.one * passing.one, factor * g.two * passing.two)

    def _of_queries(self, factor: float, changed: Array) -> Array:
        """Returns what changes of queries make of what is mixed. Equations T17 and T20."""
        return factor * changed * whole_of(self._passing)

    def _to_key(self, factor: float, g: Products) -> Products:
        """Returns gradients at keys, of gradients at what is mixed. Equations T9 and T17."""
        at_logits = _times(g, self.query)
        # Keys get in all what queries pass on.
        total = self._over_queries(_times(at_logits, self._passing), 1.0)
        found = self._centred_back(_times(at_logits, self._passed), self._values, total)
        return found.scaled(factor)

    def _of_keys(self, factor: float, changed: Array) -> Array:
        """Returns what changes of keys make of what is mixed. Equations T17 and T20."""
        passed = whole_of(self.query) * whole_of(self._passed)
        return factor * passed * self._centred(self._values, self._averaged(changed))

    @cached_property
    def _values(self) -> "_Averaged":
        """Returns the values' moments with their means over the keys that queries see. Equation
        T7.
        """
        return self._averaged(self.value)

    @cached_property
    def _keys(self) -> "_Averaged":
        """Returns the keys' moments with the same means; values and keys are often one object.
        Equation T8.
        """
        return self._values if self.key is self.value else self._averaged(self.key)

    @cached_property
    def _values_by_keys(self) -> Array:
        """Returns centred values times centred keys. Equation T10."""
        return self._centred(self._values, self._keys)

    @cached_property
    def _keys_by_keys(self) -> Array:
        """Returns centred keys times centred keys. Equation T10."""
        return self._centred(self._keys, self._keys)

    def _averaged(self, x: Products | Array) -> "_Averaged":
        """Averages moments over the keys that queries see, or coefficients of a change, which are
        not the same both ways. Equations T7 and T17.
        """
        seen = self.keys.seen
        products = x if isinstance(x, Products) else Products(x.diagonal(), x)
        # Within a place a token meets itself once in as many as stand there.
        means = self.keys.means(products.one, products.two)
        of_first = seen @ means
        of_both = of_first @ seen.T
        if products is not x:
            # A change is never asked for its gap.
            return _Averaged(products, of_first, means @ seen.T, of_both, gap=of_first)
        # Σ_j w_j ‖x_j‖² less the squared mean: what keys differ by.
        gap = np.maximum(seen @ products.one - (of_first * seen).sum(1), 0.0)
        return _Averaged(products, of_first, of_first.T, of_both, gap)

    def _centred(self, values: "_Averaged", keys: "_Averaged") -> Array:
        """Returns Σ_jj' w_ij w_i'j' ⟨v_j − v̄_i, v_j' − v̄_i'⟩ ⟨k_j − k̄_i, k_j' − k̄_i'⟩, (K, K).

        These are values less the mean that a query sees, times keys less theirs, as widths grow.

        Equations T9 and T17.
        """
        seen = self.keys.seen
        # Of wide models ⟨v, v'⟩ ⟨k, k'⟩ is the product of both means.
        one = values.moments.one * keys.moments.one
        two = values.moments.two * keys.moments.two
        every: Array = seen @ self.keys.means(one, two) @ seen.T
        less_first = (values.of_first * keys.of_first) @ seen.T
        less_second = seen @ (values.of_second * keys.of_second)
        return every - less_first - less_second + values.of_both * keys.of_both

    def _centred_with_scatter(self, values: "_Averaged") -> Array:
        """Returns `_centred` of these values and the keys, and what a finite width d adds to it.

        Values and keys are made of the same tokens, whose inner products scatter by narrow / d of
        their squares, so that even centred products do not average out.

        Equation T10.
        """
        wide = self._keys_by_keys if values is self._keys else self._values_by_keys
        # Inner products of finite vectors scatter by a share of both squares (T10).
        gaps = np.sqrt(values.gap * self._keys.gap)
        return wide + np.outer(gaps, gaps) * self.differing.narrow / self.width

    def _centred_back(self, g: Products, x: "_Averaged", total: float) -> Products:
        """Returns the adjoint of `_centred`: Σ_ii' g_ii' w_ij w_i'j' times the products of two
        keys' x less the means of x that queries see.

        total: what the products with the keys' own moments are to add up to, scatter included.

        Equations T9 and T17.
        """
        shares = _shares_of_keys(self.queries, self.keys)
        gram = self.queries.means(g.one, g.two)
        # The three terms of `_centred`, transposed: every pair, less each mean, plus both means.
        own = gram @ shares
        every = shares.T @ own
        one_sided = shares.T @ (x.of_first * own)
        rest = shares.T @ (gram * x.of_both) @ shares - one_sided - one_sided.T
        one = every.diagonal() * x.moments.one + rest.diagonal()
        two = every * x.moments.two + rest
        n = self.queries.tokens
        centred = self._keys_by_keys if x is self._keys else self._values_by_keys
        # So that the adjoint gives back what the forward side has in all, scatter included.
        wide = float(n @ (gram * centred) @ n)
        return Products(one, two).scaled(total / wide if wide else 1.0)

    def _over_queries(self, g: Products, by: Array | float) -> float:
        """Returns the sum over all pairs of queries of their gradients' products times `by`.
        Equation T17.
        """
        n = self.queries.tokens
        return float(n @ (self.queries.means(g.one, g.two) * by) @ n)

    @cached_property
    def _sharpness(self) -> "_Sharpness":
        """Returns how far logits take the weights of one query, and of two, from uniform ones.
        Equations T8 and T17.
        """
        # Logits of one query, and what logits of two queries have in common.
        shared = _shared(self.queries, self.keys)
        # The variance over keys that are drawn, of which the gap has n - 1 of n parts.
        gap = self._keys.gap * shared.keys.one / np.maximum(shared.keys.one - 1, 1)
        # Two queries share the keys of the one that sees fewer.
        gaps = np.where(shared.first_sees_no_more, gap[:, None], gap)
        of_one = self.query.one * gap
        of_two = np.clip(self.query.two * gaps, 0.0, None)
        return _Sharpness(
            square=Products(
                softmax_square(shared.keys.one, of_one), softmax_square(shared.keys.two, of_two)
            ),
            apart=Products(
                softmax_apart(shared.keys.one, of_one), softmax_apart(shared.keys.two, of_two)
            ),
            uniform=shared.uniform,
            variance=Products(of_one, of_two),
        )

    @cached_property
    def _beyond_first_order(self) -> Products:
        """Returns the growth of Σ w² over its growth to first order in the logits' variance, s² (1
        − 1/n) / n. Equations T8 and T17.
        """
        square, _, uniform, variance = self._sharpness

        def ratio(square: Array, uniform: Array, variance: Array) -> Array:
            # dA₁/ds² at 0 is (1 − 1/n)/n.
            first_order = variance * (1 - uniform) * uniform
            return _ratio(square - uniform, first_order, least=_ROUNDING * uniform)

        return Products(
            ratio(square.one, uniform.one, variance.one),
            ratio(square.two, uniform.two, variance.two),
        )

    @cached_property
    def _passed(self) -> Products:
        """Returns U₁ and U₂ over those of uniform weights: how much more a softmax lets through to
        its logits. Equations T9 and T17.
        """
        _, apart, uniform, _ = self._sharpness
        return Products(
            _ratio(apart.one, uniform.one * (1 - uniform.one)),
            _ratio(apart.two, uniform.two * (1 - uniform.two)),
        )

    @cached_property
    def _passing(self) -> Products:
        """Returns the share of a gradient at what is mixed that comes to queries, for the weights
        as they are: U₁ or U₂ of independent logits, times the gaps of values and of keys. Equations
        T9, T10 and T17.
        """
        square, _, uniform, _ = self._sharpness
        # What sharp weights leave to differ from their mean.
        left = _ratio(1 - square.one, 1 - uniform.one)
        gaps = left * np.sqrt(self._values.gap * self._keys.gap)
        scatter = np.outer(gaps, gaps) * self.differing.narrow / self.width
        wide = self._values_by_keys
        one = self._passed.one * wide.diagonal() + scatter.diagonal()
        two = self._passed.two * wide + scatter
        return Products(one, two).scaled(self.differing.wider**2)

    @property
    def variance(self) -> Entry:
        """Returns (K,) the variance of a query's logits over the keys that it sees. Equation T8."""
        return self._sharpness.variance.one if self.draws else np.zeros(self.queries.count)

    @cached_property
    def draws(self) -> bool:
        """Tells whether queries and keys are drawn at all. Equation T8."""
        return bool(np.any(self.query.one))


_ROUNDING = 1e-9
"""A share of Σ w²: what logits add to it is no more than rounding below."""


def _ratio(part: Array, of: Array, least: Array | float = 0.0) -> Array:
    """Divides; 1 where there is next to nothing to divide by. Equation T17."""
    return np.divide(part, of, out=np.ones_like(of), where=of > least)


def _times(g: Products, *factors: Products) -> Products:
    """Multiplies products within a sequence by factors of one query and of two. Equation T17."""
    one = g.one
    two = g.two
    for factor in factors:
        one = one * factor.one
        two = two * factor.two
    return Products(one, two)


class _Averaged(NamedTuple):
    """Moments of keys' tokens, and means of them over the keys that queries see."""

    moments: Products
    of_first: Array
    """(K, S) Where the first token is averaged alone."""
    of_second: Array
    """(S, K) Where the second is."""
    of_both: Array
    """(K, K) Where both are: products of what is mixed."""
    gap: Array
    """(K,) Σ_j w_ij ‖x_j‖² less the mean's own square, of moments."""


class _Sharpness(NamedTuple):
    """Says how far logits take the weights of one query, and those of two, from uniform ones."""

    square: Products
    """Σ w² over the keys that they share."""
    apart: Products
    """`softmax_apart` of them."""
    uniform: Products
    """Σ w² without logits."""
    variance: Products
    """That of a query's logits, and the covariance of two queries'."""


@lru_cache(maxsize=32)
def _shares_of_keys(queries: Places, keys: Places) -> Array:
    """Returns (K, S) the weight that all queries of a place together give to one key. Equations T9
    and T17.
    """
    return queries.tokens[:, None] * keys.seen / keys.tokens


class _Shared(NamedTuple):
    """Counts what queries of two places see."""

    keys: Products
    """Number of keys that one query sees, and that two share."""
    uniform: Products
    """Σ w² over them without logits."""
    first_sees_no_more: Array
    """(K, K) True where the first of two queries sees no more keys than the second."""


@lru_cache(maxsize=32)
def _shared(queries: Places, keys: Places) -> _Shared:
    """Counts the keys that one query sees, and that two share. Equation T17."""
    # All tokens of a memory are one place, which every query sees whole.
    is_memory = len(keys.tokens) == 1
    counts = np.full(queries.count, int(keys.tokens[0])) if is_memory else queries.keys.astype(int)
    shared = np.minimum.outer(counts, counts)
    return _Shared(
        keys=Products(counts, shared),
        uniform=Products(1 / counts, 1 / shared),
        first_sees_no_more=np.less_equal.outer(counts, counts),
    )
