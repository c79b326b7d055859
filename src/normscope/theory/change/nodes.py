"""Expectations over Gaussians that the tokens of a sequence share in part: means over fixed points.

There is one set of points for a number of tokens, whatever the correlation, so that curves over depth are smooth and
the same every time. A mean over points is one over tokens too: its error is below a hundredth.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .tokens import Alike

Array = NDArray[np.float64]
_VALUES = 24_000
"""Of one set, over all of its tokens."""
_FEWEST = 1000


@lru_cache(maxsize=16)
def _points(tokens: int, seed: int) -> tuple[Array, Array]:
    """Standard normals (S, tokens) as what tokens share, (S, 1), and the rest of them."""
    count = max(_FEWEST, _VALUES // tokens)
    drawn = np.random.default_rng(seed).standard_normal((count, tokens))
    drawn /= math.sqrt(float(np.square(drawn).mean()))
    shared = drawn.mean(1, keepdims=True)
    shared /= math.sqrt(float(np.square(shared).mean()) * tokens)
    return shared, drawn - drawn.mean(1, keepdims=True)


def normals(tokens: int, correlation: float, seed: int) -> Array:
    """(S, tokens) of variance 1 and that correlation of two tokens; another seed, another variable."""
    shared, rest = _points(tokens, seed)
    together = math.sqrt(max(0.0, 1 + (tokens - 1) * correlation))
    return together * shared + math.sqrt(max(0.0, 1 - correlation)) * rest


def mean_product(left: Array, right: Array) -> Alike:
    """E left_s right_s, and E left_s right_t of two tokens; (S, tokens) each."""
    points, tokens = left.shape
    one = float(np.vdot(left, right)) / (points * tokens)
    if tokens == 1:
        return Alike(one, 0.0)
    every = float(left.sum(1) @ right.sum(1)) / points
    return Alike(one, (every / tokens - one) / (tokens - 1))


def rounded(correlation: float) -> float:
    """To three digits of what is left to 1, under which kernels are remembered."""
    return 1 - float(f"{1 - min(1.0, correlation):.3g}")
