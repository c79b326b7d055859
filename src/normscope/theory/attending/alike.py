"""Attention on moments, and gradients back through it, where all tokens are alike.

Places with moments of their own are in `by_place.py`.

The equations are T7 to T10 of docs/theory.md.
"""

from ..mixing import (
    LinearMap,
    Mixing,
    Products,
    make,
    sharpened,
)
from ..places import Differing


class _Alike:
    """Attends with tokens that all are alike: each of n queries over the same m keys.

    W_Q and W_K are random, so that over draws a logit is Gaussian with the variance q_Q (q_K −
    p_K): what all keys share moves no weight.

    Equations T8 and T10.
    """

    def __init__(
        self,
        *,
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
        # Over random matrices a logit q·k/√K has the variance q_Q q_K; what all keys share moves no
        # weight, so that q_K − p_K is left.
        self.apart_keys = max(0.0, key.one - key.two) * differing.wider
        self.variance = query.one * self.apart_keys
        self.draws = bool(self.variance)
        self.weights = sharpened(keys, self.variance, query.two * self.apart_keys, self.common)

    def forward(self) -> Products:
        """Returns the products of what is mixed. Equation T7."""
        return self.weights.forward(self.value)

    def back(self, factor: float) -> tuple[LinearMap, LinearMap, LinearMap]:
        """Returns the maps of gradients at what is mixed to those at values, at queries and at
        keys.

        A logit z_ij has the gradient w_ij g_i·(v_j − Σ_k w_ik v_k), which vanishes where values are
        alike. A query's gradient is Σ_j of that times k_j less the keys' mean; a key's is Σ_i of
        that times q_i, and over all keys these add up to 0. Values and keys are made of the same
        tokens: those differ in d / narrow directions, so that a share narrow / d of (Σ_j w_j (1 −
        w_j))² is left where products of random vectors would average out.

        factor: d σ_out², the gain of W_O on the way back.

        Equations T9 and T10.
        """
        n = self.queries
        m = self.keys
        weights = self.weights
        wider = self.differing.wider
        to_value = gradient_at_values(weights, n, m, factor)
        if not self.draws:
            return to_value, _NO_MAP, _NO_MAP
        apart_values = max(0.0, self.value.one - self.value.two) * wider * factor
        # Values times keys: each product scatters by narrow / d of both squares (T10).
        own = 1 + self.common
        scatter = self.common * (1 - weights.self_one) ** 2
        # At logits, of one query and of two, in T9 U₁ and U₂ times the values' gap.
        one = apart_values * (weights.apart_one * own + scatter)
        two = apart_values * (weights.apart_two * own + scatter)
        to_query = LinearMap(one * self.apart_keys, 0.0, 0.0, two * self.apart_keys, 0.0)
        # A key meets n queries with weights of 1/m on average, and pairs of queries as often.
        of_one_query = n / m * one * self.query.one * wider
        of_two_queries = n * (n - 1) / m * two * self.query.two * wider
        # What one key gets, the others together get with the other sign.
        others = -1 / (m - 1) if m > 1 else 0.0
        to_key = LinearMap(
            one_one=of_one_query,
            one_two=of_two_queries,
            two_one=of_one_query * others,
            two_two=of_two_queries * others,
            apart=0.0,
        )
        return to_value, to_query, to_key


_NO_MAP = LinearMap(0.0, 0.0, 0.0, 0.0, 0.0)


def gradient_at_values(weights: Mixing, n: int, m: int, factor: float) -> LinearMap:
    """Returns the map of gradients at what n queries have mixed to those at m keys' values: the
    transpose of the mixing.

    One key's share of two queries is Σ_j w_ij w_i'j / m; two keys share what is left of 1.

    With 2 queries of 2 keys and uniform weights, gradients of 1 that agree (one = two = 1) give
    each value 1, and those that do not (two = 0) give it 1/2.

    Equation T9.
    """
    one = weights.self_one
    two = weights.self_two
    of_one_key = factor * n / m
    of_two_keys = of_one_key / (m - 1) if m > 1 else 0.0
    one_one = of_one_key * one
    one_two = of_one_key * (n - 1) * two
    two_one = of_two_keys * (1 - one)
    two_two = of_two_keys * (n - 1) * (1 - two)
    apart = of_one_key * n / m
    return make(LinearMap, (one_one, one_two, two_one, two_two, apart))
