"""A model along a straight line through its weights: the first update at every rate, by forward passes alone."""

# N = rows of an output (tokens, or examples), C = its last dimension
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .held import HELD

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
        flat = centred.view(-1)
        total += flat.dot(flat)
        summed_C += centred.sum(0)
    count = len(rows_NC)
    every = float(total) / rows_NC.numel()
    return every, max(0.0, every - float((summed_C / count).square().mean()))
