"""A model along a straight line through its weights: the first update at every rate, by forward passes alone.

The line's direction is an optimiser's first update, or what it adds in closed form while the gradient stays what it is
(held updates); the lowest loss along it is the bottom of a parabola.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn, optim

from ..settings.arguments import checked
from .unchanged import restored

_HeldUpdate = Callable[[Tensor, Tensor, Mapping[str, Any], int], Tensor]
"""Weight, gradient, the settings of its group, and a number of updates, to their mean over the learning rate."""


def _adam(weight: Tensor, gradient: Tensor, group: Mapping[str, Any], updates: int) -> Tensor:
    """Corrected for their start, both means are those of one gradient: g / (|g| + ε) in every update.

    So is the largest mean square with `amsgrad`, for the uncorrected one rises.
    """
    decoupled = group.get("decoupled_weight_decay", False)
    uphill = _uphill(weight, gradient, group, decay=not decoupled)
    step = uphill.abs().add_(group["eps"]).reciprocal_().mul_(uphill).neg_()
    return step.sub_(weight, alpha=group["weight_decay"]) if decoupled else step


def _sgd(weight: Tensor, gradient: Tensor, group: Mapping[str, Any], updates: int) -> Tensor:
    momentum, taken = group["momentum"], 0.0
    buffer = 1.0
    for _ in range(updates):
        taken += 1 + momentum * buffer if group["nesterov"] else buffer
        buffer = momentum * buffer + 1 - group["dampening"]
    return _uphill(weight, gradient, group, decay=True).mul(-(taken if momentum else updates) / updates)


def _uphill(weight: Tensor, gradient: Tensor, group: Mapping[str, Any], *, decay: bool) -> Tensor:
    gradient = -gradient if group["maximize"] else gradient
    return gradient.add(weight, alpha=group["weight_decay"]) if decay and group["weight_decay"] else gradient


HELD: Mapping[type[optim.Optimizer], _HeldUpdate] = {optim.Adam: _adam, optim.AdamW: _adam, optim.SGD: _sgd}
"""Weight decay is that of the weight as it is: what it becomes in these updates makes a difference of the order of rate
times decay."""


# N = rows of an output (tokens, or examples), C = its last dimension


HELD_UPDATES = 10
"""An optimiser with momentum, or with a start of its own such as RAdam's, shows its step size after some updates."""
_PROBE_RATE = 1e-3
_ELEMENTS_AT_ONCE = 1 << 16
"""As many as stay in a processor's cache while several passes are made over them."""

Make = Callable[[str, nn.Parameter], torch.optim.Optimizer | None]
"""Name of a weight, and a stand-in for it, to an optimiser over that alone; None for a weight that is not trained."""


@torch.no_grad()
def first_updates(
    weights: Mapping[str, nn.Parameter], gradients: Mapping[str, Tensor], make: Make, *, updates: int = HELD_UPDATES
) -> dict[str, Tensor]:
    """What the optimiser adds to each weight in an update, over its rate: the mean of its first from this gradient.

    The gradient is held while the optimiser takes `updates` updates from its initial state. Adam and Lion move by the
    gradient's sign in each; momentum adds up. Weights without a gradient are left out. Nothing of `weights` changes.
    """
    return {
        name: step
        for name, weight in weights.items()
        if name in gradients and (step := _first(name, weight.detach(), gradients[name], make, updates)) is not None
    }


def _first(name: str, weight: Tensor, gradient: Tensor, make: Make, updates: int) -> Tensor | None:
    optimizer = make(name, nn.Parameter(weight))
    if optimizer is None:
        return None
    if (held := HELD.get(type(optimizer))) is not None:
        return held(weight, gradient, optimizer.param_groups[0], updates)
    stand_in = nn.Parameter(weight.clone())
    optimizer = make(name, stand_in)
    assert optimizer is not None
    for group in optimizer.param_groups:
        group["lr"] = _PROBE_RATE
    stand_in.grad = gradient.clone()
    for _ in range(updates):
        optimizer.step()
    return stand_in.detach().sub_(weight).div_(_PROBE_RATE * updates)


class Line:
    """Weights at any distance along a direction; they come back bit by bit."""

    def __init__(self, weights: Mapping[str, nn.Parameter], direction: Mapping[str, Tensor]) -> None:
        self.direction = direction
        self._weights = {name: weights[name] for name in direction}
        self._start = {name: weight.detach().clone() for name, weight in self._weights.items()}
        length, size = _length(direction.values()), _length(self._start.values())
        self.reach = size / length if length else 0.0
        """The rate at which the line is as long as the weights: a scale to look for others by."""

    @contextmanager
    def moving(self) -> Iterator[Callable[[float], None]]:
        """A function that takes the weights to where one update at a rate brings them, while the context lasts."""
        try:
            yield self._move
        finally:
            with torch.no_grad():
                for name, weight in self._weights.items():
                    weight.copy_(self._start[name])

    @contextmanager
    def at(self, rate: float) -> Iterator[None]:
        """The weights after one update at this rate, while the context lasts."""
        with self.moving() as move:
            move(rate)
            yield

    @torch.no_grad()
    def _move(self, rate: float) -> None:
        for name, weight in self._weights.items():
            torch.add(self._start[name], self.direction[name], alpha=rate, out=weight)


def _length(tensors: Iterable[Tensor]) -> float:
    return math.hypot(*(float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) for tensor in tensors))


@torch.no_grad()
def row_spread(output: Tensor) -> tuple[float, float]:
    """Mean squares of an output's rows about their own means, and of what differs between rows in them.

    output: (..., C), read as (N, C). With z = each row minus its mean over C: E‖z‖²/C, and E‖z - z̄‖²/C with z̄ the mean
    row. Where every token gets the same answer the second is 0. Sums are kept in float64, a few rows at a time.
    """
    rows_NC = output.detach().reshape(-1, output.shape[-1])
    total = torch.zeros((), dtype=torch.float64, device=output.device)
    summed_C = torch.zeros(output.shape[-1], dtype=torch.float64, device=output.device)
    for some in torch.split(rows_NC, max(1, _ELEMENTS_AT_ONCE // output.shape[-1])):
        wide = some.double()
        centred = wide - wide.mean(1, keepdim=True)
        flat = centred.reshape(-1)
        total += flat.dot(flat)
        summed_C += centred.sum(0)
    count = len(rows_NC)
    every = float(total) / rows_NC.numel()
    return every, max(0.0, every - float((summed_C / count).square().mean()))


def bottom(x: Sequence[float], y: Sequence[float]) -> float:
    """Where the parabola through three points is lowest; the middle one's place where it has no bottom.

    x: rising. Beyond the outer points only where the middle one is not the lowest.
    """
    (a, b, c), (left, here, right) = x, y
    rise, fall = (b - a) * (right - here), (c - b) * (left - here)
    return b - 0.5 * ((b - a) * rise - (c - b) * fall) / (rise + fall) if rise + fall > 0 else b


def lowest(x: Sequence[float], y: Sequence[float]) -> float:
    """Where a curve is lowest, by the parabola through its lowest point and the neighbours of that.

    x: rising. That point itself where it is the first or the last, or where a neighbour is not finite.
    """
    at = min(range(len(y)), key=y.__getitem__)
    if not 0 < at < len(y) - 1 or not all(map(math.isfinite, y[at - 1 : at + 2])):
        return x[at]
    return bottom(x[at - 1 : at + 2], y[at - 1 : at + 2])


@checked
def weights_after(
    model: nn.Module,
    make: Callable[[nn.Module], torch.optim.Optimizer],
    loss: Callable[[int], Tensor],
    updates: Sequence[int] = (1,),
) -> dict[int, dict[str, Tensor]]:
    """Copies of all trainable weights after each of these updates, by parameter name, in evaluation mode.

    make: a fresh optimiser over the model's parameters, with its rate; any of torch's kind. loss: runs the model on the
    batch of an update, counted from 1, and gives one number. Dropout is off, so that the same weights and batches
    give the same updates. Weights, buffers, `.grad`, modes and random generators are at the end what they were; what
    `make` or `loss` draws is drawn anew. Takes max(updates) forward and backward passes.

    Raises ValueError for no update or one below 1, and for a loss that is not one finite number.
    """
    if not updates or min(updates) < 1:
        raise ValueError(f"updates are counted from 1, and at least one is needed; got {list(updates)}")
    found = {}
    with restored(model), torch.enable_grad():
        optimizer = make(model)
        for update in range(1, max(updates) + 1):
            # The gradients that are there are the caller's.
            for weight in model.parameters():
                weight.grad = None
            value = loss(update)
            if value.numel() != 1 or not bool(value.isfinite().all()):
                what = float(value.detach()) if value.numel() == 1 else f"a tensor of shape {tuple(value.shape)}"
                raise ValueError(f"the loss of update {update} must be one finite number, got {what}")
            value.reshape(()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if update in updates:
                found[update] = {
                    name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad
                }
    return found
