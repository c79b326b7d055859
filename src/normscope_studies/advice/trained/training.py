"""One short training at a constant rate, after a warm-up or without one: where does its loss end?"""

import math
from typing import Any

import torch
from torch import nn

from normscope.model import profile
from normscope.optim import DECAY_EVERYWHERE, OPTIMIZERS, OptimizerConfig, make_optimizer
from normscope.optim.schedules import linear_warmup

from ..cases.case import Case
from .tasks import Task, task_of


def model_of(case: Case, task: Task) -> nn.Module:
    """With its initial weights, those that a placement takes from the first batch included."""
    model = task.model(case.seed)
    first = task.batch(0)
    profile(model, lambda: first.run(model))
    return model


def optimizer_of(case: Case, rate: float) -> OptimizerConfig:
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
    case: Case, rate: float, *, updates: int, text_file: str, corpus: str, warmup_updates: int = 0
) -> dict[str, Any]:
    """Losses in nats per target token: of every update's batch before it, and on held-out text at the end.

    "valid_nats" is None where a loss was not finite. "unigram_nats": what a model reaches there that knows how
    frequent tokens are and nothing else. Dropout is off, and nothing is clipped.
    """
    task = task_of(case, text_file, corpus)
    model = model_of(case, task)
    optimizer = make_optimizer(model, optimizer_of(case, rate))
    losses: list[float] = []
    for update in range(1, updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * linear_warmup(update, warmup_updates=warmup_updates)
        batch = task.batch(update - 1)
        loss = batch.loss(batch.run(model))
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    valid = held_out_nats(task, model) if len(losses) == updates else math.nan
    return {
        "train_nats": [round(value, 4) for value in losses],
        "valid_nats": valid if math.isfinite(valid) else None,
        "unigram_nats": task.unigram_nats(),
    }


@torch.no_grad()
def held_out_nats(task: Task, model: nn.Module) -> float:
    """Mean over the held-out batches, which are of about one size."""
    model.eval()
    batches = task.held_out()
    return sum(float(batch.loss(batch.run(model))) for batch in batches) / len(batches)
