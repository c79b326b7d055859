"""Predictions of many placements at once, on as many cores as there are."""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import partial

from .predict import ModelSetting, StackPrediction, Update, predict
from .unpredictable import Unpredictable

_WORTH_PROCESSES = 4000
"""Blocks in all, a tenth of a second of work: what it takes to start processes is a third of that."""
_UPDATE_COSTS = 100
"""A block whose update is followed takes so many times as long."""

Stacks = dict[str, StackPrediction]


def predict_many(placements: Sequence[str], model: ModelSetting, update: Update | None = None) -> dict[str, Stacks]:
    """What `predict` says of each. Raises as it does."""
    found, refused = predict_or_refuse(placements, model, update)
    for reason in refused.values():
        raise reason
    return found


def predict_or_refuse(
    placements: Sequence[str], model: ModelSetting, update: Update | None = None
) -> tuple[dict[str, Stacks], dict[str, Unpredictable]]:
    """What `predict` says of each that theory follows, and why of those that it does not."""
    both = dict(zip(placements, _each(placements, model, update), strict=True))
    refused = {name: one for name, one in both.items() if isinstance(one, Unpredictable)}
    return {name: one for name, one in both.items() if not isinstance(one, Unpredictable)}, refused


def _each(placements: Sequence[str], model: ModelSetting, update: Update | None) -> "list[Stacks | Unpredictable]":
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    processes = min(cores, len(placements))
    if processes == 1 or len(placements) * model.blocks < _WORTH_PROCESSES / (1 if update is None else _UPDATE_COSTS):
        return [_one(name, model, update) for name in placements]
    # Forked, so that they know the placements that the user has registered, and import nothing again.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return pool.map(partial(_one, model=model, update=update), placements, chunksize=1)


def _one(placement: str, model: ModelSetting, update: Update | None) -> "Stacks | Unpredictable":
    try:
        return predict(placement, model, update=update)
    except Unpredictable as reason:
        return reason
