"""scikit-learn: regressions with an L2 penalty, as an offset and weights."""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, installation

Rows = NDArray[np.float64]
PENALTY = 1.0


class Weighted(NamedTuple):
    """A value for rows of features, (N, D): offset + x @ weights."""

    offset: float
    weights_D: Rows

    def __call__(self, x_ND: Rows) -> Rows:
        found: Rows = self.offset + x_ND @ self.weights_D
        return found


def logistic(x_ND: Rows, labels_N: NDArray[np.bool_]) -> Weighted:
    """The log odds that a row's label is true; the penalty is on features of deviation 1 among these rows.

    Raises UserError where scikit-learn is not installed, ValueError where all labels are alike.
    """
    fitted = linear_models("regressions").LogisticRegression(C=1 / PENALTY, max_iter=5_000)
    return _fitted(fitted, x_ND, labels_N)


def ridge(x_ND: Rows, y_N: Rows) -> Weighted:
    """Least squares, with the same penalty. Raises UserError where scikit-learn is not installed."""
    return _fitted(linear_models("regressions").Ridge(alpha=PENALTY), x_ND, y_N)


def _fitted(regression: Any, x_ND: Rows, y_N: NDArray[Any]) -> Weighted:
    mean_D, deviation_D = spread(x_ND)
    regression.fit((x_ND - mean_D) / deviation_D, y_N)
    weights_D = np.ravel(regression.coef_) / deviation_D
    return Weighted(float(np.ravel(regression.intercept_)[0] - weights_D @ mean_D), weights_D)


def spread(x_ND: Rows) -> tuple[Rows, Rows]:
    """Mean and deviation of every feature; infinite where it does not vary, so that it has no weight."""
    deviation_D = x_ND.std(0)
    return x_ND.mean(0), np.where(deviation_D > 0, deviation_D, np.inf)


def linear_models(what: str) -> Any:
    """The module of scikit-learn; what: needs it, in the UserError where it is not installed."""
    try:
        return import_module("sklearn.linear_model")
    except ModuleNotFoundError:
        raise UserError(f"{what} need scikit-learn: {installation('probes')}") from None
