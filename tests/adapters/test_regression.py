"""Regressions as offset and weights, beside scikit-learn's own answers and closed forms."""

import sys

import numpy as np
import pytest

from normscope.adapters.regression import logistic, ridge
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
