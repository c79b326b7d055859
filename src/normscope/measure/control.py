"""Control tasks: labels that only a memory of words could know, for telling a probe's reading from its own learning."""

import numpy as np
from numpy.typing import NDArray


def control_labels(words_N: NDArray[np.int64], labels_N: NDArray[np.int64], *, seed: int) -> NDArray[np.int64]:
    """A label for each token that its word alone decides, drawn once a word as often as the task's labels occur.

    Hewitt & Liang 2019 (arXiv:1909.03368, section 2). What a probe gains on the task over this one is its selectivity.
    Raises ValueError without tokens, or without a word and a label for each.
    """
    if len(words_N) != len(labels_N) or not len(words_N):
        raise ValueError(f"give a word and a label for each token, got {len(words_N)} and {len(labels_N)}")
    _, places_N = np.unique(words_N, return_inverse=True)
    drawn_W = np.random.default_rng(seed).integers(0, len(labels_N), int(places_N.max()) + 1)
    made: NDArray[np.int64] = labels_N[drawn_W][places_N]
    return made
