"""scikit-learn: the linear classifier with which features are probed."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .regression import linear_models, spread


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
