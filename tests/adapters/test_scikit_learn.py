"""Linear probes read what is linear and no more, whatever the features' size."""

import sys

import numpy as np
import pytest

from normscope.adapters.scikit_learn import linear_probe
from normscope.errors import UserError

pytest.importorskip("sklearn.linear_model", reason="needs scikit-learn (the `probes` extra)")


def drawn(rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Rows of six features, and which of four directions each lies farthest along."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 6))
    return x, (x @ rng.standard_normal((6, 4))).argmax(1)


def accuracy(x: np.ndarray, labels: np.ndarray) -> float:
    """Of the other half of the rows."""
    return linear_probe(x[::2], labels[::2]).accuracy(x[1::2], labels[1::2])


def test_a_linear_rule_is_read_and_shuffled_labels_are_not() -> None:
    x, labels = drawn()
    assert accuracy(x, labels) > 0.9
    shuffled = np.random.default_rng(1).permutation(labels)
    commonest = np.bincount(labels).max() / len(labels)
    # Four standard errors of a share of 450 rows.
    assert accuracy(x, shuffled) < commonest + 4 * 0.5 / 450**0.5


def test_what_no_plane_separates_is_not_read() -> None:
    x, _ = drawn()
    assert accuracy(x, (x[:, 0] * x[:, 1] > 0).astype(np.int64)) < 0.62


def test_scale_shift_and_dead_features_change_nothing() -> None:
    x, labels = drawn()
    changed = np.concatenate([1e4 * x - 3e4, np.full((len(x), 1), 7.0)], 1)
    assert accuracy(changed, labels) == accuracy(x, labels)


def test_the_penalised_likelihood_is_stationary_where_the_probe_stands() -> None:
    """Of a fit that is carried to its end: C · Σ (p − y) zᵀ + W = 0, worked out here."""
    x, labels = drawn(200)
    probe = linear_probe(x, labels, inverse_penalty=0.5, iterations=2_000)
    z = (x - x.mean(0)) / x.std(0)
    logits = z @ probe.model.coef_.T + probe.model.intercept_
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    off = shares - np.eye(4)[labels]
    slope = 0.5 * off.T @ z + probe.model.coef_
    # The tolerance of the fit, 1e-3, is on the gradient of the mean over rows.
    assert np.abs(slope).max() < 0.5 * 200 * 2e-3
    assert np.abs(probe.model.coef_).max() > 1


def test_a_probe_is_asked_of_other_rows_as_it_was_fitted() -> None:
    """Features that have grown since are read as they are: nothing is fitted to them."""
    x, labels = drawn()
    probe = linear_probe(x[::2], labels[::2])
    assert probe.accuracy(x[1::2], labels[1::2]) > 0.9
    assert probe.accuracy(x[1::2] @ np.eye(6)[::-1], labels[1::2]) < 0.6


def test_a_probe_without_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    x, labels = drawn(20)
    with pytest.raises(UserError, match=r"linear probes need scikit-learn: .*\[probes\]"):
        linear_probe(x, labels)
