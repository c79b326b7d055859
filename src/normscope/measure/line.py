"""A model along a straight line through its weights: the first update at every rate, by forward passes alone."""

# N = rows of an output (tokens, or examples), C = its last dimension
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

HELD_UPDATES = 10
"""An optimiser with momentum, or with a start of its own such as RAdam's, shows its step size after some updates."""
_PROBE_RATE = 1e-3
_ROWS_AT_ONCE = 64

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
    direction = {}
    for name, weight in weights.items():
        if name not in gradients:
            continue
        stand_in = nn.Parameter(weight.detach().clone())
        optimizer = make(name, stand_in)
        if optimizer is None:
            continue
        for group in optimizer.param_groups:
            group["lr"] = _PROBE_RATE
        stand_in.grad = gradients[name].clone()
        for _ in range(updates):
            optimizer.step()
        direction[name] = stand_in.detach().sub_(weight).div_(_PROBE_RATE * updates)
    return direction


class Line:
    """Weights at any distance along a direction; they come back bit by bit."""

    def __init__(self, weights: Mapping[str, nn.Parameter], direction: Mapping[str, Tensor]) -> None:
        self.direction = direction
        self._weights = {name: weights[name] for name in direction}
        self._start = {name: weight.detach().clone() for name, weight in self._weights.items()}

    @property
    def reach(self) -> float:
        """The rate at which the line is as long as the weights: a scale to look for others by."""
        length = sum(float(step.square().sum(dtype=torch.float64)) for step in self.direction.values()) ** 0.5
        size = sum(float(weight.square().sum(dtype=torch.float64)) for weight in self._start.values()) ** 0.5
        return size / length if length else 0.0

    @contextmanager
    def at(self, rate: float) -> Iterator[None]:
        """The weights after one update at this rate, while the context lasts."""
        try:
            with torch.no_grad():
                for name, weight in self._weights.items():
                    weight.copy_(self._start[name]).add_(self.direction[name], alpha=rate)
            yield
        finally:
            with torch.no_grad():
                for name, weight in self._weights.items():
                    weight.copy_(self._start[name])


@torch.no_grad()
def row_spread(output: Tensor) -> tuple[float, float]:
    """Mean squares of an output's rows about their own means, and of what differs between rows in them.

    output: (..., C), read as (N, C). With z = each row minus its mean over C: E‖z‖²/C, and E‖z - z̄‖²/C with z̄ the mean
    row. Where every token gets the same answer the second is 0. Sums are kept in float64, some rows at a time.
    """
    rows_NC = output.detach().reshape(-1, output.shape[-1])
    total = torch.zeros((), dtype=torch.float64, device=output.device)
    summed_C = torch.zeros(output.shape[-1], dtype=torch.float64, device=output.device)
    for start in range(0, len(rows_NC), _ROWS_AT_ONCE):
        centred = rows_NC[start : start + _ROWS_AT_ONCE].double()
        centred -= centred.mean(1, keepdim=True)
        total += centred.square().sum()
        summed_C += centred.sum(0)
    count = len(rows_NC)
    every = float(total) / rows_NC.numel()
    return every, max(0.0, every - float((summed_C / count).square().mean()))
