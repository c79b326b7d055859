"""Spearman's correlation beside SciPy's."""

import math

import numpy as np
import pytest

from normscope.evidence.estimates import rank_correlation


def test_rank_correlation_is_spearman_s() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(40)
    y = np.round(x + rng.standard_normal(40), 1)
    stats = pytest.importorskip("scipy.stats", reason="needs SciPy (with the `probes` extra)")
    r, low, high = rank_correlation(x.tolist(), y.tolist())
    assert r == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert low < r < high
    assert rank_correlation([1, 2, 3, 4, 5], [1, 4, 9, 16, 25]) == pytest.approx((1, 1, 1), abs=1e-6)
    assert math.isnan(rank_correlation([1, 2, 3], [1, 2, 3])[0])
