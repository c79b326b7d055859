"""Initial values that a placement takes from one batch: Admin's scales, from the variances of its
branches.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from ..placement import Profiling
from .linear import in_mode
from .stack import PlacedSublayer, Stack


@torch.no_grad()
def profile(
    model: nn.Module, run: Callable[[], object], *, finished: Collection[Stack] = ()
) -> None:
    """Set the parameters that placements of `model` take from the variances of their branches
    (`Placement.profiled`).

    run: one forward pass of the model on a batch, which happens as the placement's `profiling`
    says. It starts from the parameters' first values whatever they are now, and leaves modes and
    random generators as they were. Without a placement that asks for it, `run` is not called.
    finished: stacks to leave as they are. Raises ValueError where `run` does not reach such a
    stack.
    """
    stacks = [m for m in model.modules() if isinstance(m, Stack) and m.placement.is_profiled()]
    stacks = [stack for stack in stacks if stack not in finished]
    for how in dict.fromkeys(stack.placement.profiling for stack in stacks):
        walks = [_Walk(stack) for stack in stacks if stack.placement.profiling == how]
        _run(model, walks, how, run)
        for walk in walks:
            walk.finish()


def _run(
    model: nn.Module, walks: "Sequence[_Walk]", how: Profiling, run: Callable[[], object]
) -> None:
    """One forward pass in the mode that is asked for, with every walk watching its stack."""
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with ExitStack() as undone:
        undone.enter_context(torch.random.fork_rng(sorted(devices, key=str), enabled=how.dropout))
        for walk in walks:
            walk.reset()
            undone.callback(walk.stack.dropout.register_forward_hook(walk.embedding).remove)
            for sublayer in walk.sublayers:
                undone.callback(sublayer.register_forward_hook(walk.branch).remove)
        undone.enter_context(in_mode(model, training=how.dropout))
        run()


class _Walk:
    """The measurements of one pass through one stack, and the values that follow from them."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.placement = stack.placement
        self.sublayers = list(stack.sublayers())
        self.input_variance = 1.0
        self.variances: list[float] = []

    def reset(self) -> None:
        """Resets every value that the placement profiles to its start."""
        for sublayer in self.sublayers:
            for name in self.placement.profiled([1.0], 1.0):
                sublayer.placed.restart(name)

    def embedding(self, dropout: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        self.input_variance, self.variances = _variance(output), []

    def branch(self, sublayer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        self.variances.append(_variance(output))
        if self.placement.profiling.in_order and len(self.variances) < len(self.sublayers):
            self._set(len(self.variances))

    def finish(self) -> None:
        """Set what could not be set before the whole batch had passed. Raises ValueError where none
        did.
        """
        if len(self.variances) != len(self.sublayers):
            raise ValueError(
                "a profiling pass has to run every stack once, and one of placement "
                f"{self.placement.name!r} with {len(self.sublayers)} sub-layers saw "
                f"{len(self.variances)} of them"
            )
        if not self.placement.profiling.in_order:
            for index in range(1, len(self.sublayers)):
                self._set(index)

    def _set(self, index: int) -> None:
        """The values of one sub-layer, counted from 0."""
        following = self.sublayers[index]
        assert isinstance(following, PlacedSublayer)
        for name, value in self.placement.profiled(
            self.variances[:index], self.input_variance
        ).items():
            following.placed[name].fill_(value)


def _variance(x: Tensor) -> float:
    """Returns the variance over all elements, about their common mean."""
    return float(x.double().var(correction=0))
