"""How far two orders agree."""

import math
from collections.abc import Sequence

import numpy as np

from .estimates import NORMAL, Floats


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Spearman's, with its 95 % interval by Fisher's transform and the variance of Bonett & Wright 2000.

    NaN for fewer than 5 pairs, and where one side does not vary. Ties share their mean rank.
    """
    if len(x) != len(y):
        raise ValueError(f"pairs are needed, got {len(x)} and {len(y)} values")
    if len(x) < 5 or len(set(x)) == 1 or len(set(y)) == 1:
        return math.nan, math.nan, math.nan
    r = float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])
    half = NORMAL * math.sqrt((1 + r**2 / 2) / (len(x) - 3))
    # Rounding may leave a perfect order a hair from 1, or beyond it.
    if abs(r) > 1 - 1e-9:
        return r, r, r
    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def _ranks(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.array([(array < one).sum() + ((array == one).sum() + 1) / 2 for one in array])
