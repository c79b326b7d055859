"""One training of a case at one rate, and a range test: one whose rate grows with every update."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from normscope.model import profile
from normscope.optim import DECAY_EVERYWHERE, OPTIMIZERS, OptimizerConfig, make_optimizer
from normscope.optim.schedules import linear_warmup

from .cases import AdviceCase
from .tasks import CaseTask, task_of


def model_of(case: AdviceCase, task: CaseTask) -> nn.Module:
    """With its initial weights, those that a placement takes from the first batch included."""
    model = task.model(case.seed)
    first = task.batch(0)
    profile(model, lambda: first.run(model))
    return model


def optimizer_of(case: AdviceCase, rate: float) -> OptimizerConfig:
    """With what the optimiser is usually given."""
    listed = OPTIMIZERS[case.optimizer]
    return OptimizerConfig(
        name=case.optimizer,
        peak_lr=rate,
        momentum=listed.usual_momentum,
        weight_decay=listed.usual_weight_decay,
        groups=DECAY_EVERYWHERE,
    )


def train_once(
    case: AdviceCase, rate: float, *, updates: int, text_file: str, corpus: str, warmup_updates: int = 0
) -> dict[str, Any]:
    """Losses in nats per target token: of every update's batch before it, and on held-out text at the end.

    "valid_nats" is None where a loss was not finite. "unigram_nats": what a model reaches there that knows how
    frequent tokens are and nothing else. Dropout is off, and nothing is clipped.
    """
    task = task_of(case, text_file, corpus)
    model = model_of(case, task)
    optimizer = make_optimizer(model, optimizer_of(case, rate))
    rates = (rate * linear_warmup(update, warmup_updates=warmup_updates) for update in range(1, updates + 1))
    losses = _losses(task, model, optimizer, rates)
    valid = held_out_nats(task, model) if len(losses) == updates else math.nan
    return {
        "train_nats": [round(value, 4) for value in losses],
        "valid_nats": valid if math.isfinite(valid) else None,
        "unigram_nats": task.unigram_nats(),
    }


def _losses(
    task: CaseTask, model: nn.Module, optimizer: torch.optim.Optimizer, rates: Iterable[float], stop: float = math.inf
) -> list[float]:
    """Of every update's batch before it, one update a rate, up to a loss of more than `stop` times the lowest."""
    losses: list[float] = []
    for number, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = task.batch(number)
        loss = batch.loss(batch.run(model))
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]) or losses[-1] > stop * min(losses):
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return losses


@torch.no_grad()
def held_out_nats(task: CaseTask, model: nn.Module) -> float:
    """Mean over the held-out batches, which are of about one size."""
    model.eval()
    batches = task.held_out()
    return sum(float(batch.loss(batch.run(model))) for batch in batches) / len(batches)


SWEPT = {"sgd": (1e-4, 1e2), "lion": (1e-7, 1e-1)}
"""Lowest and highest rate, by optimiser."""
_SWEPT = (1e-6, 1.0)
"""Of the others."""
_BETA, _STOP = 0.98, 4.0
"""Lightning's smoothing, and how many times the lowest smoothed loss ends the test."""
_SKIPPED_FIRST, _SKIPPED_LAST = 10, 1
_SMOOTHING = 0.05
"""pytorch-lr-finder's: what a new loss counts."""


def range_test(case: AdviceCase, *, updates: int, text_file: str, corpus: str, seed: int) -> dict[str, Any]:
    """One training whose rate grows by a constant factor in each update, as Smith 2017 (arXiv:1506.01186) has it.

    seed: of the batches' order. Returns rates, losses before each update, and what two well-known tools would suggest.
    """
    task = task_of(case, text_file, corpus, seed)
    model = model_of(case, task)
    optimizer = make_optimizer(model, optimizer_of(case, 1.0))
    low, high = SWEPT.get(case.optimizer, _SWEPT)
    rates = np.geomspace(low, high, updates).tolist()
    losses = _losses(task, model, optimizer, rates, _STOP)
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
    return _lowest(x[finite], np.gradient(y[finite], x[finite])) if finite.sum() > 1 else None


def steepest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """Where the smoothed loss falls fastest from update to update: pytorch-lr-finder 0.2."""
    smoothed: list[float] = []
    for loss in losses:
        smoothed.append(_SMOOTHING * loss + (1 - _SMOOTHING) * smoothed[-1] if smoothed else loss)
    x, y = np.array(rates[: len(smoothed)]), np.array(smoothed)
    finite = np.isfinite(y)
    return _lowest(x[finite], np.gradient(y[finite])) if finite.sum() > 1 else None


def _lowest(rates: NDArray[np.float64], slopes: NDArray[np.float64]) -> float:
    return float(rates[int(np.argmin(slopes))])
