"""The short looks at a case that its rate is predicted from: facts about the model, and a range
test.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.doctor.advise import facts_of
from normscope.doctor.identify.stacks import as_stacks, streams_in
from normscope.optim import make_optimizer

from .cases import AdviceCase
from .tasks import task_of
from .training import losses_of, model_of, optimizer_of

LOOK_SEED = 1000
"""The seed of short looks: their batches differ from those of the trainings that they predict."""
_WEIGHTS_SEED = 1


def facts_about(case: AdviceCase, *, text_file: str, corpus: str) -> dict[str, Any]:
    """Returns the facts by which the doctor looks up known rates, and the number of parameters
    beside tables of tokens.
    """
    task = task_of(case, text_file, corpus, 1)
    model, batch = model_of(case, task, _WEIGHTS_SEED), task.batch(0)
    _, streams = streams_in(model, batch.run)
    inner = sum(
        weight.numel()
        for name, weight in model.named_parameters()
        if not {"embedding", "head"} & set(name.split("."))
    )
    return {"facts": asdict(facts_of(as_stacks(streams), case.optimizer)), "parameters": inner}


SWEPT = {"sgd": (1e-4, 1e2), "lion": (1e-7, 1e-1)}
"""Lowest and highest rate, by optimiser."""
_SWEPT = (1e-6, 1.0)
"""The rates swept for the other optimisers."""
_BETA, _STOP = 0.98, 4.0
"""Lightning's smoothing, and how many times the lowest smoothed loss ends the test."""
_SKIPPED_FIRST, _SKIPPED_LAST = 10, 1
_SMOOTHING = 0.05
"""pytorch-lr-finder's: what a new loss counts."""


def range_test(
    case: AdviceCase, *, updates: int, text_file: str, corpus: str
) -> dict[str, float | None]:
    """Returns the rates that two well-known tools suggest after a training whose rate grows by a
    constant factor in each update, as Smith 2017 (arXiv:1506.01186) has it.
    """
    task = task_of(case, text_file, corpus, LOOK_SEED)
    model = model_of(case, task, _WEIGHTS_SEED)
    optimizer = make_optimizer(model, optimizer_of(case, 1.0))
    rates = np.geomspace(*SWEPT.get(case.optimizer, _SWEPT), updates).tolist()
    losses = losses_of(task, model, optimizer, rates, _STOP)
    return {"lightning": lightning_suggestion(rates, losses), "lr_finder": steepest(rates, losses)}


def lightning_suggestion(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """Returns the rate at which the smoothed loss falls fastest by the rate, the first ten updates
    and the last left out: Lightning 2.5.
    """
    mean, smoothed = 0.0, []
    for number, loss in enumerate(losses):
        mean = _BETA * mean + (1 - _BETA) * loss
        smoothed.append(mean / (1 - _BETA ** (number + 1)))
    x, y = np.array(rates[: len(smoothed)]), np.array(smoothed)
    x, y = x[_SKIPPED_FIRST:-_SKIPPED_LAST], y[_SKIPPED_FIRST:-_SKIPPED_LAST]
    finite = np.isfinite(y)
    return _lowest(x[finite], np.gradient(y[finite], x[finite])) if finite.sum() > 1 else None


def steepest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """Returns the rate at which the smoothed loss falls fastest from update to update:
    pytorch-lr-finder 0.2.
    """
    smoothed: list[float] = []
    for loss in losses:
        smoothed.append(_SMOOTHING * loss + (1 - _SMOOTHING) * smoothed[-1] if smoothed else loss)
    x, y = np.array(rates[: len(smoothed)]), np.array(smoothed)
    finite = np.isfinite(y)
    return _lowest(x[finite], np.gradient(y[finite])) if finite.sum() > 1 else None


def _lowest(rates: NDArray[np.float64], slopes: NDArray[np.float64]) -> float:
    return float(rates[int(np.argmin(slopes))])
