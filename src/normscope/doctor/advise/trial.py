"""A real training of a few updates on the user's own batches, after which every weight is what it was."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from ...optim.schedules import linear_warmup
from ..observe.gradients import loss_of, spread_of
from ..trace.forward import Inputs, call_with
from .optimizers import Maker

Batches = Callable[[int], tuple[Inputs, Callable[[Any], Tensor] | None]]
"""Number of an update, from 0, to what the model is called with in it and the loss of its output."""

Watch = Callable[[str, int, int], None]
"""Told of the stage, the updates that were made, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What was seen in it."""

    rate: float
    """Peak learning rate, constant after the warm-up."""
    warmup_updates: int
    losses: tuple[float, ...]
    """Of every update's batch before it, in nats; it ends at the first that is not finite."""
    spreads: tuple[float, ...]
    """Of every update's output: the mean squared difference between its rows and their mean row, over the first's."""


_LAST = 6


def mean_of_last(values: Sequence[float]) -> float:
    """Of a training's last updates, which scatter; NaN or infinite where one of them is."""
    last = values[-_LAST:]
    return sum(last) / len(last)


def updates_of(trials: Sequence[Trial]) -> int:
    """How many were made in all of them."""
    return sum(len(trial.losses) for trial in trials)


def counting(watch: Watch, stage: str, total: int) -> Callable[[], None]:
    """What is called after each update, and tells `watch` how many there were of that stage."""
    numbers = count(1)
    return lambda: watch(stage, next(numbers), total)


def train_shortly(
    model: nn.Module,
    batches: Batches,
    maker: Maker,
    *,
    rate: float,
    updates: int,
    warmup_updates: int = 0,
    watch: Callable[[], None] = lambda: None,
) -> Trial:
    """Train from where the weights are, in training mode; within `restored`, which puts them back.

    watch: told of each update. Raises ValueError where a forward pass or the loss raises.
    """
    for module in model.modules():
        module.training = True
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    optimizer = maker.over(weights)
    shares = [group["lr"] for group in optimizer.param_groups]
    losses: list[float] = []
    spreads: list[float] = []
    for update in range(1, updates + 1):
        inputs, loss = batches(update - 1)
        with torch.enable_grad():
            output = call_with(model, inputs)
            value, _ = loss_of(output, loss)
            losses.append(float(value.detach()))
            spreads.append(spread_of(output))
            watch()
            if not math.isfinite(losses[-1]):
                break
            found = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
        for weight, gradient in zip(weights.values(), found, strict=True):
            weight.grad = gradient
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            group["lr"] = share * rate * linear_warmup(update, warmup_updates=warmup_updates)
        optimizer.step()
    first = spreads[0] or 1.0
    return Trial(
        rate=rate,
        warmup_updates=warmup_updates,
        losses=tuple(losses),
        spreads=tuple(spread / first for spread in spreads),
    )
