"""Predictions of many placements at once, on as many cores as there are."""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import partial

from .predict import ModelSetting, StackPrediction, predict

_WORTH_PROCESSES = 4000
"""Blocks in all, a tenth of a second of work: what it takes to start processes is a third of that."""


def predict_many(placements: Sequence[str], model: ModelSetting) -> dict[str, dict[str, StackPrediction]]:
    """What `predict` says of each. Raises as it does."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    processes = min(cores, len(placements))
    if processes == 1 or len(placements) * model.blocks < _WORTH_PROCESSES:
        return {name: predict(name, model) for name in placements}
    # Forked, so that they know the placements that the user has registered, and import nothing again.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        found = pool.map(partial(predict, model=model), placements, chunksize=1)
    return dict(zip(placements, found, strict=True))
