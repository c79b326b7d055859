"""A real training of a few updates on the user's own batches, after which every weight is what it was."""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from ...optim.schedules import linear_warmup
from ..observe.gradients import loss_of, spread_of
from ..trace.forward import Inputs, call_with
from .optimizers import Maker

TrainingBatches = Callable[[int], tuple[Inputs, Callable[[Any], Tensor] | None]]
"""Number of an update, from 0, to what the model is called with in it and the loss of its output."""

StageWatch = Callable[[str, int, int], None]
"""Told of the stage, the updates that were made, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortRun:
    """What was seen in it."""

    rate: float
    """Peak learning rate, constant after the warm-up."""
    warmup_updates: int
    losses: tuple[float, ...]
    """Of every update's batch before it, in nats; it ends at the first that is not finite."""
    spreads: tuple[float, ...]
    """Of every update's output: the mean squared difference between its rows and their mean row, over the first's,
    or over the largest where the first is 0."""


_LAST = 6


def mean_of_last(values: Sequence[float]) -> float:
    """Of a training's last updates, which scatter; NaN or infinite where one of them is."""
    last = values[-_LAST:]
    return sum(last) / len(last)


def updates_of(trials: Sequence[ShortRun]) -> int:
    """How many were made in all of them."""
    return sum(len(trial.losses) for trial in trials)


def counting(watch: StageWatch, stage: str, total: int) -> Callable[[], None]:
    """What is called after each update, and tells `watch` how many there were of that stage."""
    numbers = count(1)
    return lambda: watch(stage, next(numbers), total)


def train_shortly(
    model: nn.Module,
    batches: TrainingBatches,
    maker: Maker,
    *,
    rate: float,
    updates: int,
    warmup_updates: int = 0,
    factor: Callable[[int], float] = lambda update: 1.0,
    watch: Callable[[], None] = lambda: None,
) -> ShortRun:
    """Train from where the weights are, in training mode; within `restored`, which puts them back.

    factor: of the rate, by the number of the update, from 1. watch: told of each update. Raises ValueError where a
    forward pass or the loss raises.
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
            group["lr"] = share * rate * linear_warmup(update, warmup_updates=warmup_updates) * factor(update)
        optimizer.step()
    # An output that starts at zero, as of a head of zeros, has a spread only later.
    first = spreads[0] or max(filter(math.isfinite, spreads), default=0.0) or 1.0
    return ShortRun(
        rate=rate,
        warmup_updates=warmup_updates,
        losses=tuple(losses),
        spreads=tuple(spread / first for spread in spreads),
    )


Given = Callable[[int], Inputs] | Iterable[Inputs]
"""A function of the update's number, from 0, or something to go through such as a data loader; each item is what the
model is called with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """Short real trainings that are asked for."""

    batches: Given
    updates: int = 60
    """Of all trainings that look for the best rate, together, at most; as many again look for a warm-up, at most."""


def batches_of(given: Given, loss: Callable[..., Tensor] | None) -> TrainingBatches:
    """Items by number: those of a loader are kept, and it is begun again at its end.

    loss: of the output alone, or of the output and the item that it was computed from. The batches raise ValueError
    where a loader has none.
    """
    item = given if callable(given) else _Kept(given)

    def batch(number: int) -> tuple[Inputs, Callable[[Any], Tensor] | None]:
        inputs = item(number)
        return inputs, loss_of_output(loss, inputs)

    return batch


def loss_of_output(loss: Callable[..., Tensor] | None, inputs: Inputs) -> Callable[[Any], Tensor] | None:
    """The loss as a function of the output alone, for this item."""
    return partial(_swapped, loss, inputs) if loss is not None and _positional(loss) >= 2 else loss


def _swapped(loss: Callable[..., Tensor], inputs: Inputs, output: Any) -> Tensor:
    return loss(output, inputs)


def _positional(function: Callable[..., Any]) -> int:
    """How many positional arguments must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 1  # some that are written in C do not say
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in kinds and one.default is one.empty for one in parameters)


class _Kept:
    """A loader's items by number."""

    def __init__(self, loader: Iterable[Inputs]) -> None:
        self._loader, self._items = loader, list[Inputs]()
        self._left: Iterator[Inputs] = iter(loader)

    def __call__(self, number: int) -> Inputs:
        while number >= len(self._items):
            try:
                self._items.append(next(self._left))
            except StopIteration:
                if not self._items:
                    raise ValueError("the batches to train on are none: give a loader with at least one") from None
                return self._items[number % len(self._items)]
        return self._items[number]


LEAST_SPREAD = -8.0
"""log10: an output that is this much alike for all tokens is no more alike for being more so."""


def loss_after(trial: ShortRun, updates: int) -> float:
    """Mean loss of the last batches; infinite where the training ended before."""
    if len(trial.losses) < updates:
        return math.inf
    mean = mean_of_last(trial.losses)
    return mean if math.isfinite(mean) else math.inf


def least_spread(trial: ShortRun) -> float:
    """log10 of the least spread between tokens on the way, of its start."""
    seen = [spread for spread in trial.spreads[1:] if math.isfinite(spread)]
    return math.log10(max(10**LEAST_SPREAD, min(seen, default=0.0)))
