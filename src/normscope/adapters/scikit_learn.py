"""scikit-learn: regressions whose weights are read, and the linear classifier with which features are probed."""

import warnings
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, installation

_Rows = NDArray[np.float64]
PENALTY = 1.0


class LinearModel(NamedTuple):
    """A value for rows of features, (N, D): offset + x @ weights."""

    offset: float
    weights_D: _Rows

    def __call__(self, x_ND: _Rows) -> _Rows:
        found: _Rows = self.offset + x_ND @ self.weights_D
        return found


def logistic(x_ND: _Rows, labels_N: NDArray[np.bool_]) -> LinearModel:
    """The log odds that a row's label is true; the penalty is on features of deviation 1 among these rows.

    Raises UserError where scikit-learn is not installed, ValueError where all labels are alike.
    """
    fitted = linear_models("regressions").LogisticRegression(C=1 / PENALTY, max_iter=5_000)
    return _fitted(fitted, x_ND, labels_N)


def ridge(x_ND: _Rows, y_N: _Rows) -> LinearModel:
    """Least squares, with the same penalty. Raises UserError where scikit-learn is not installed."""
    return _fitted(linear_models("regressions").Ridge(alpha=PENALTY), x_ND, y_N)


def _fitted(regression: Any, x_ND: _Rows, y_N: NDArray[Any]) -> LinearModel:
    mean_D, deviation_D = spread(x_ND)
    regression.fit((x_ND - mean_D) / deviation_D, y_N)
    weights_D = np.ravel(regression.coef_) / deviation_D
    return LinearModel(float(np.ravel(regression.intercept_)[0] - weights_D @ mean_D), weights_D)


def spread(x_ND: _Rows) -> tuple[_Rows, _Rows]:
    """Mean and deviation of every feature; infinite where it does not vary, so that it has no weight."""
    deviation_D = x_ND.std(0)
    return x_ND.mean(0), np.where(deviation_D > 0, deviation_D, np.inf)


def linear_models(what: str) -> Any:
    """The module of scikit-learn; what: needs it, in the UserError where it is not installed."""
    try:
        return import_module("sklearn.linear_model")
    except ModuleNotFoundError:
        raise UserError(f"{what} need scikit-learn: {installation('probes')}") from None


def probe_accuracy(
    x_ND: NDArray[np.floating[Any]],
    labels_N: NDArray[np.int64],
    held_out_MD: NDArray[np.floating[Any]],
    held_out_labels_M: NDArray[np.int64],
    *,
    inverse_penalty: float = 1.0,
    iterations: int = 100,
) -> float:
    """Share of the held-out rows that a linear classifier, fitted to the others, puts into their class.

    Multinomial logistic regression with an L2 penalty on features of mean 0 and deviation 1 among the fitted rows, so
    that the penalty weighs alike whatever the stream's size; features that do not vary are left out by it. Raises
    UserError where scikit-learn is not installed, ValueError where the fitted rows have one class alone.
    """
    probe = linear_models("linear probes").LogisticRegression(C=inverse_penalty, max_iter=iterations, tol=1e-3)
    from sklearn.exceptions import ConvergenceWarning

    wide_ND = np.asarray(x_ND, dtype=np.float64)
    mean_D, deviation_D = spread(wide_ND)
    with warnings.catch_warnings():
        # A probe that could still be improved by a hair is a probe.
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit((wide_ND - mean_D) / deviation_D, labels_N)
    return float(probe.score((held_out_MD - mean_D) / deviation_D, held_out_labels_M))
