"""Attention's weights before training: by how much logits differ, and what a softmax makes of them."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .mixing import SOFTMAX_STEPS, SOFTMAX_WIDEST, Array, softmax_squares
from .stream import Applied, MomentStack


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWeights:
    """Curves of one kind of attention by block, (L,), each a mean over queries."""

    deviation: Array
    """Root mean square over queries of the standard deviation of a query's logits over the keys that it sees."""
    square: Array
    """E Σ_j w_j²: one over the number of keys where all weigh alike, 1 where one has all."""
    entropy: Array
    """E -Σ_j w_j ln w_j, in nats."""


def weights_of(stack: MomentStack) -> dict[str, AttentionWeights]:
    """By kind of sub-layer. Logits are those of independent Gaussians, of which theory knows the variance."""
    found = {}
    for kind in ("attention", "cross_attention"):
        attends = [applied for applied in stack.applied if applied.site.kind == kind]
        if attends:
            found[kind] = _curves(stack, kind, attends)
    return found


def _curves(stack: MomentStack, kind: str, attends: list[Applied]) -> AttentionWeights:
    places, setting = stack.atoms.places, stack.setting
    queries = np.ones(1) if places is None else places.tokens
    if kind == "cross_attention" or places is None:
        keys = np.full(len(queries), setting.memory_tokens if kind == "cross_attention" else setting.tokens)
    else:
        keys = places.keys.astype(int)
    variances = [applied.map.variance for applied in attends]
    variance = np.array([one if isinstance(one, np.ndarray) else [one] * len(queries) for one in variances])
    # A query's own length scatters over heads as the root of a χ² does, unless it is normed: three nodes, exact to
    # the fifth power of a normal variable.
    width = attends[0].site.stack.width_of_head
    steady = np.array([applied.steady for applied in attends])
    reach = np.where(steady, 0.0, math.sqrt(6 / width))[:, None]
    share = queries / queries.sum()
    both = np.array([_softmax(keys, variance * np.maximum(0, 1 + side * reach)) for side in (-1, 0, 1)])
    square, entropy = np.tensordot([1 / 6, 4 / 6, 1 / 6], both, 1) @ share
    return AttentionWeights(deviation=np.sqrt(variance @ share), square=square, entropy=entropy)


def _softmax(keys: Array, variance: Array) -> Array:
    """(2, L, K) Σ w² and the entropy, (K,) keys seen and (L, K) variances; linear in the variance between steps."""
    place = np.sqrt(np.minimum(variance, SOFTMAX_WIDEST**2)) * SOFTMAX_STEPS
    low = np.minimum(place.astype(int), int(SOFTMAX_WIDEST * SOFTMAX_STEPS) - 1)
    counts, at = np.unique(keys, return_inverse=True)
    table = _table(tuple(counts.tolist()), int(low.max()) + 1)
    below, above = (table[:, step, np.broadcast_to(at, step.shape)] for step in (low, low + 1))
    found: Array = below + (above - below) * (place**2 - low**2) / (2 * low + 1)
    return found


@lru_cache(maxsize=16)
def _table(counts: tuple[int, ...], steps: int) -> Array:
    """(2, steps + 1, counts) of both, by standard deviations.

    By parts E Σ w z is σ² (1 - E Σ w²), which is also σ times the derivative of E ln Σ e^z: the entropy follows.
    """
    sigma = np.arange(steps + 1)[:, None] / SOFTMAX_STEPS
    square = np.array([softmax_squares(step, counts) for step in range(steps + 1)])
    slope = sigma * (1 - square)
    growth = np.cumsum((slope[1:] + slope[:-1]) / 2, 0) / SOFTMAX_STEPS
    partition = np.log(counts) + np.concatenate([np.zeros((1, len(counts))), growth])
    return np.array([square, partition - sigma * slope])
