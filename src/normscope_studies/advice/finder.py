"""What an LR range test says with the same number of updates: the peers that the probe is compared with."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from normscope.optim import make_optimizer

from .cases.case import Case
from .trained.tasks import task_of
from .trained.training import model_of, optimizer_of

SWEPT = {"sgd": (1e-4, 1e2), "lion": (1e-7, 1e-1)}
"""Lowest and highest rate, by optimiser."""
_SWEPT = (1e-6, 1.0)
"""Of the others."""
_BETA, _STOP = 0.98, 4.0
"""Lightning's smoothing, and how many times the lowest smoothed loss ends the test."""
_SKIPPED_FIRST, _SKIPPED_LAST = 10, 1
_SMOOTHING = 0.05
"""pytorch-lr-finder's: what a new loss counts."""


def range_test(case: Case, *, updates: int, text_file: str, corpus: str, seed: int) -> dict[str, Any]:
    """One training whose rate grows by a constant factor in each update, as Smith 2017 (arXiv:1506.01186) has it.

    seed: of the batches' order. Returns rates, losses before each update, and what two well-known tools would suggest.
    """
    task = task_of(case, text_file, corpus, seed)
    model = model_of(case, task)
    optimizer = make_optimizer(model, optimizer_of(case, 1.0))
    low, high = SWEPT.get(case.optimizer, _SWEPT)
    rates = np.geomspace(low, high, updates).tolist()
    losses: list[float] = []
    for update, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = task.batch(update)
        loss = batch.loss(batch.run(model))
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]) or losses[-1] > _STOP * min(losses):
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return {
        "rates": rates[: len(losses)],
        "losses": losses,
        "lightning": lightning_suggestion(rates, losses),
        "lr_finder": steepest(rates, losses),
    }


def lightning_suggestion(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """Where the smoothed loss falls fastest by the rate, the first ten updates and the last left out: Lightning 2.5."""
    mean, smoothed = 0.0, []
    for number, loss in enumerate(losses):
        mean = _BETA * mean + (1 - _BETA) * loss
        smoothed.append(mean / (1 - _BETA ** (number + 1)))
    x, y = np.array(rates[: len(smoothed)]), np.array(smoothed)
    x, y = x[_SKIPPED_FIRST:-_SKIPPED_LAST], y[_SKIPPED_FIRST:-_SKIPPED_LAST]
    finite = np.isfinite(y)
    if finite.sum() < 2:
        return None
    return float(x[finite][int(np.argmin(np.gradient(y[finite], x[finite])))])


def steepest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """Where the smoothed loss falls fastest from update to update: pytorch-lr-finder 0.2."""
    smoothed: list[float] = []
    for loss in losses:
        smoothed.append(_SMOOTHING * loss + (1 - _SMOOTHING) * smoothed[-1] if smoothed else loss)
    y = np.array(smoothed)
    finite = np.isfinite(y)
    if finite.sum() < 2:
        return None
    return float(np.array(rates[: len(y)])[finite][int(np.argmin(np.gradient(y[finite])))])
