"""A run of a few updates of the caller's own model, by the caller's optimiser and on the caller's batches."""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..doctor.advise import name_of, wanted_rate_of
from ..doctor.observe.gradients import loss_of
from ..doctor.trace.forward import Inputs, call_with, loss_of_output
from ..optim import DECAY_EVERYWHERE, OPTIMIZERS, OptimizerConfig, optimizer_over, roles
from ..optim.schedules import linear_warmup

Given = Callable[[int], Inputs] | Iterable[Inputs]
"""A function of the update's number, from 0, or something to go through such as a data loader; each item is what the
model is called with."""

NumberedBatches = Callable[[int], tuple[Inputs, Callable[[Any], Tensor] | None]]
"""Number of an update, from 0, to what the model is called with in it and the loss of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRun:
    """What was seen in it."""

    rate: float
    """Peak learning rate, constant after the warm-up."""
    losses: tuple[float, ...]
    """Of every update's batch before it, in nats; it ends at the first that is not finite."""


class Maker:
    """Makes optimisers of one kind, each over some of a model's weights, with rates as shares of the largest rate."""

    def __init__(self, name: str, over: Callable[[Mapping[str, nn.Parameter]], torch.optim.Optimizer | None]) -> None:
        self.name = name
        self._over = over

    def over(self, weights: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
        """Over these weights, by name. Raises ValueError where none of them is trained."""
        made = self._over(weights)
        if made is None:
            raise ValueError("the optimiser moves none of the model's weights: was it made over this model?")
        return made


def maker_of(model: nn.Module, optimizer: str | torch.optim.Optimizer) -> Maker:
    """optimizer: a name of `normscope.optim.OPTIMIZERS`, or an instance over the model's parameters.

    Raises ValueError for an unknown name; `Maker.over` does for a class that cannot be built from its own settings.
    """
    name = name_of(optimizer)
    if isinstance(optimizer, torch.optim.Optimizer):
        return Maker(name, _rebuilding(model, optimizer))
    listed = OPTIMIZERS[optimizer]
    config = OptimizerConfig(
        name=optimizer,
        peak_lr=1.0,
        momentum=listed.usual_momentum,
        weight_decay=listed.usual_weight_decay,
        groups=DECAY_EVERYWHERE,
    )
    found = roles(model)
    return Maker(name, lambda weights: optimizer_over(weights, found, config))


def _rebuilding(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[[Mapping[str, nn.Parameter]], torch.optim.Optimizer | None]:
    """The instance's class again, with the settings of each weight's group."""
    kind: Any = type(optimizer)
    names = {id(weight): name for name, weight in model.named_parameters()}
    groups = {names.get(id(weight)): group for group in optimizer.param_groups for weight in group["params"]}
    accepted = inspect.signature(kind).parameters
    largest = wanted_rate_of(optimizer) or 1.0

    def over(weights: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer | None:
        parted: dict[int, tuple[dict[str, object], list[nn.Parameter]]] = {}
        for name, weight in weights.items():
            if name in groups:
                group = groups[name]
                parted.setdefault(id(group), (group, []))[1].append(weight)
        if not parted:
            return None
        made = []
        for group, members in parted.values():
            settings = {key: value for key, value in group.items() if key in accepted and key != "params"}
            made.append(settings | {"params": members, "lr": float(str(group["lr"])) / largest})
        try:
            rebuilt: torch.optim.Optimizer = kind(made)
        except Exception as error:
            raise ValueError(
                f"{kind.__name__} cannot be built again from the settings of its groups ({error}); name one of "
                f"{', '.join(OPTIMIZERS)} instead"
            ) from error
        return rebuilt

    return over


def run_for(
    model: nn.Module,
    batches: NumberedBatches,
    maker: Maker,
    *,
    rate: float,
    updates: int,
    warmup_updates: int = 0,
    factor: Callable[[int], float] = lambda update: 1.0,
) -> OwnRun:
    """Train from where the weights are, in training mode; within `restored`, which puts them back.

    factor: of the rate, by the number of the update, from 1. Raises ValueError where a forward pass or the loss raises.
    """
    for module in model.modules():
        module.training = True
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    optimizer = maker.over(weights)
    shares = [group["lr"] for group in optimizer.param_groups]
    losses: list[float] = []
    for update in range(1, updates + 1):
        inputs, loss = batches(update - 1)
        with torch.enable_grad():
            value, _ = loss_of(call_with(model, inputs), loss)
            losses.append(float(value.detach()))
            if not math.isfinite(losses[-1]):
                break
            found = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
        for weight, gradient in zip(weights.values(), found, strict=True):
            weight.grad = gradient
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            group["lr"] = share * rate * linear_warmup(update, warmup_updates=warmup_updates) * factor(update)
        optimizer.step()
    return OwnRun(rate=rate, losses=tuple(losses))


def batches_of(given: Given, loss: Callable[..., Tensor] | None) -> NumberedBatches:
    """Items by number: those of a loader are kept, and it is begun again at its end.

    loss: of the output alone, or of the output and the item that it was computed from. The batches raise ValueError
    where a loader has none.
    """
    item = given if callable(given) else _Kept(given)

    def batch(number: int) -> tuple[Inputs, Callable[[Any], Tensor] | None]:
        inputs = item(number)
        return inputs, loss_of_output(loss, inputs)

    return batch


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
