"""scikit-learn: the linear classifier with which features are probed."""

# N = rows, D = features
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, installation

_Features = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class LinearProbe:
    """A fitted classifier, which is asked of any rows without being fitted again."""

    model: Any
    """Multinomial logistic regression of scikit-learn."""
    mean_D: NDArray[np.float64]
    deviation_D: NDArray[np.float64]
    """The standard deviation of the features among the rows that it was fitted to; infinite for one
    that did not vary.
    """

    def accuracy(self, x_ND: _Features, labels_N: NDArray[np.int64]) -> float:
        """Returns the share of the rows that it puts into their class."""
        wide_ND = np.asarray(x_ND, dtype=np.float64)
        return float(self.model.score((wide_ND - self.mean_D) / self.deviation_D, labels_N))


def linear_probe(
    x_ND: _Features,
    labels_N: NDArray[np.int64],
    *,
    inverse_penalty: float = 1.0,
    iterations: int = 100,
) -> LinearProbe:
    """Returns the probe that is fitted to rows of features and their classes.

    Multinomial logistic regression with an L2 penalty on features of mean 0 and deviation 1 among
    these rows, so that the penalty weighs alike whatever the features' size; one that does not vary
    has no weight. Raises UserError where scikit-learn is not installed, ValueError where all rows
    are of one class.
    """
    try:
        linear_model = import_module("sklearn.linear_model")
    except ModuleNotFoundError:
        raise UserError(f"linear probes need scikit-learn: {installation('probes')}") from None
    not_converged = import_module("sklearn.exceptions").ConvergenceWarning
    wide_ND = np.asarray(x_ND, dtype=np.float64)
    mean_D, spread_D = wide_ND.mean(0), wide_ND.std(0)
    deviation_D = np.where(spread_D > 0, spread_D, np.inf)
    model = linear_model.LogisticRegression(C=inverse_penalty, max_iter=iterations, tol=1e-3)
    with warnings.catch_warnings():
        # A probe that could still be improved by a hair is a probe.
        warnings.simplefilter("ignore", not_converged)
        model.fit((wide_ND - mean_D) / deviation_D, labels_N)
    return LinearProbe(model, mean_D, deviation_D)
