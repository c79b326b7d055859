"""Held updates in closed form: what an optimiser adds to a weight in an update while the gradient stays what it is."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, optim

HeldUpdate = Callable[[Tensor, Tensor, Mapping[str, Any], int], Tensor]
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


HELD: Mapping[type[optim.Optimizer], HeldUpdate] = {optim.Adam: _adam, optim.AdamW: _adam, optim.SGD: _sgd}
"""Weight decay is that of the weight as it is: what it becomes in these updates makes a difference of the order of rate
times decay."""
