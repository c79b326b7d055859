"""Initial values that a placement takes from one batch: Admin's scales, from the variances of its branches."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from .stack import PlacedSublayer, Stack


@torch.no_grad()
def profile(model: nn.Module, run: Callable[[], object]) -> None:
    """Set the parameters that placements of `model` take from the variances of their branches (`Placement.profiled`).

    run: one forward pass of the model on a batch; it happens in evaluation mode, so that no dropout is counted. Each
    stack is walked in the order of its sub-layers, and each value is in place before the sub-layer that has it is
    reached. Without a placement that asks for it, `run` is not called.
    """
    stacks = [m for m in model.modules() if isinstance(m, Stack) and m.placement.profiled([], 1.0)]
    if not stacks:
        return
    modes = {module: module.training for module in model.modules()}
    with ExitStack() as hooks:
        for stack in stacks:
            walk = _Walk(stack)
            hooks.callback(stack.register_forward_pre_hook(walk.begins).remove)
            for sublayer in stack.sublayers():
                hooks.callback(sublayer.register_forward_hook(walk.branch).remove)
        model.eval()
        try:
            run()
        finally:
            for module, training in modes.items():
                module.training = training


class _Walk:
    """One pass through one stack."""

    def __init__(self, stack: Stack) -> None:
        self.placement, self.sublayers = stack.placement, list(stack.sublayers())
        self.input_variance = 1.0
        self.variances: list[float] = []

    def begins(self, stack: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.input_variance, self.variances = _variance(inputs[0]), []

    def branch(self, sublayer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        self.variances.append(_variance(output))
        if len(self.variances) < len(self.sublayers):
            following = self.sublayers[len(self.variances)]
            assert isinstance(following, PlacedSublayer)
            for name, value in self.placement.profiled(self.variances, self.input_variance).items():
                following.placed[name].fill_(value)


def _variance(x: Tensor) -> float:
    """Over all elements, about their common mean."""
    return float(x.double().var(correction=0))
