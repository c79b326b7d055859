"""Weights a step along a direction, sizes of tensors, the bottom of a parabola, and real updates."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .unchanged import restored

# N = rows of an output (tokens, or examples), C = its last dimension


_ELEMENTS_AT_ONCE = 1 << 16
"""As many as stay in a processor's cache while several passes are made over them."""


@contextmanager
def moved(weights: Mapping[str, nn.Parameter], direction: Mapping[str, Tensor], distance: float) -> Iterator[None]:
    """Weights so many times a direction away, while the context lasts; they come back bit by bit."""
    start = {name: weights[name].detach().clone() for name in direction}
    try:
        with torch.no_grad():
            for name, step in direction.items():
                weights[name].add_(step, alpha=distance)
        yield
    finally:
        with torch.no_grad():
            for name, before in start.items():
                weights[name].copy_(before)


@torch.no_grad()
def euclidean_norm(x: Tensor) -> float:
    """‖x‖ of all entries, summed in float64 where the device has it."""
    if x.device.type != "cpu" or x.numel() <= _ELEMENTS_AT_ONCE:
        wide = torch.float32 if x.device.type == "mps" else torch.float64
        return float(torch.linalg.vector_norm(x, dtype=wide))
    # In the order of memory and a few entries at a time, as a copy of all would have to go there and come back.
    in_order = x.permute(sorted(range(x.ndim), key=x.stride, reverse=True)).reshape(-1)
    pieces = (some.double() for some in torch.split(in_order, _ELEMENTS_AT_ONCE))
    return math.sqrt(sum(float(wide.dot(wide)) for wide in pieces))


def mean_square(x: Tensor) -> float:
    """The mean of all squares: of (..., D) E‖x‖²/d over the tokens."""
    return euclidean_norm(x) ** 2 / x.numel()


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


def weights_after(
    model: nn.Module,
    make: Callable[[nn.Module], torch.optim.Optimizer],
    loss: Callable[[int], Tensor],
    updates: Sequence[int],
) -> dict[int, dict[str, Tensor]]:
    """Copies of all trainable weights after each of these updates, by parameter name, in evaluation mode.

    make: a fresh optimiser over the model's parameters, with its rate; any of torch's kind. loss: runs the model on the
    batch of an update, counted from 1, and gives one number. Dropout is off, so that the same weights and batches
    give the same updates. Weights, buffers, `.grad`, modes and random generators are at the end what they were; what
    `make` or `loss` draws is drawn anew. Takes max(updates) forward and backward passes.

    Raises ValueError for a loss that is not one finite number.
    """
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
