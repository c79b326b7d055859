"""Weights a step along a direction, sizes of tensors, and the bottom of a parabola."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

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
