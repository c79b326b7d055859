"""Regressions beside scikit-learn's own answers and closed forms; linear probes read what is linear, and no more."""

import sys

import numpy as np
import pytest

from normscope.adapters.scikit_learn import logistic, probe_accuracy, ridge
from normscope.errors import UserError

linear_model = pytest.importorskip("sklearn.linear_model", reason="needs scikit-learn (the `probes` extra)")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, -1.0]


def test_ridge_is_its_closed_form_over_standardised_features():
    y = X @ [2.0, -0.3, 4.0] + 1.0 + 0.1 * RNG.standard_normal(60)
    z = (X - X.mean(0)) / X.std(0)
    solved = np.linalg.solve(z.T @ z + np.eye(3), z.T @ (y - y.mean()))
    found = ridge(X, y)
    assert found(X) == pytest.approx(y.mean() + z @ solved, abs=1e-9)


def test_the_log_odds_are_scikit_learn_s_of_rows_it_has_not_seen():
    labels = X[:, 0] + 0.1 * X[:, 1] + 0.5 * RNG.standard_normal(60) > 0.5
    z = (X - X.mean(0)) / X.std(0)
    asked = X[::3] + 0.5
    fitted = linear_model.LogisticRegression(C=1.0, max_iter=5_000).fit(z, labels)
    wanted = fitted.decision_function((asked - X.mean(0)) / X.std(0))
    assert logistic(X, labels)(asked) == pytest.approx(wanted, abs=1e-9)


def test_what_does_not_vary_has_no_weight():
    same = np.concatenate([X, np.full((60, 1), 3.0)], axis=1)
    assert ridge(same, X[:, 0]).weights_D[3] == 0
    assert logistic(same, X[:, 0] > 0).weights_D[3] == 0


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(UserError, match=r"regressions need scikit-learn: .*\[probes\]"):
        ridge(X, X[:, 0])


def drawn(rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 6))
    return x, (x @ rng.standard_normal((6, 4))).argmax(1)


def accuracy(x: np.ndarray, labels: np.ndarray) -> float:
    return probe_accuracy(x[::2], labels[::2], x[1::2], labels[1::2])


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


def test_a_probe_without_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    x, labels = drawn(20)
    with pytest.raises(UserError, match=r"linear probes need scikit-learn: .*\[probes\]"):
        accuracy(x, labels)
