"""scikit-learn: regressions with an L2 penalty, as an offset and weights."""

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
    fitted = _linear_models().LogisticRegression(C=1 / PENALTY, max_iter=5_000)
    return _fitted(fitted, x_ND, labels_N)


def ridge(x_ND: Rows, y_N: Rows) -> Weighted:
    """Least squares, with the same penalty. Raises UserError where scikit-learn is not installed."""
    return _fitted(_linear_models().Ridge(alpha=PENALTY), x_ND, y_N)


def _fitted(regression: Any, x_ND: Rows, y_N: NDArray[Any]) -> Weighted:
    mean_D, deviation_D = x_ND.mean(0), x_ND.std(0)
    # A feature that does not vary has no weight.
    deviation_D = np.where(deviation_D > 0, deviation_D, np.inf)
    regression.fit((x_ND - mean_D) / deviation_D, y_N)
    weights_D = np.ravel(regression.coef_) / deviation_D
    return Weighted(float(np.ravel(regression.intercept_)[0] - weights_D @ mean_D), weights_D)


def _linear_models() -> Any:
    try:
        from sklearn import linear_model
    except ModuleNotFoundError:
        raise UserError(f"regressions need scikit-learn: {installation('probes')}") from None
    return linear_model
