"""What to say when a loss or a gradient is no longer a number."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class NonFinite(Exception):
    """A run was stopped before the optimiser could move on a loss or gradient that is not finite."""

    def __init__(self, *, update: int, loss: float, parameter: str) -> None:
        what = "the gradient" if math.isfinite(loss) else f"the loss ({loss})"
        super().__init__(f"{what} of update {update} is not finite; first seen in {parameter}")
        self.update = update


def first_bad_gradient(model: nn.Module, recompute: Callable[[], object]) -> str:
    """The parameter in which the trouble shows first: a weight that is not finite, or else the first gradient of a
    repeated backward pass that is not.

    recompute: runs forward and backward again, with the same batches and seeds.
    """
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"the weights of {name}"
    bad: list[str] = []

    def watch(name: str) -> Callable[[Tensor], None]:
        def note(parameter: Tensor) -> None:
            if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
                bad.append(name)

        return note

    handles = [
        parameter.register_post_accumulate_grad_hook(watch(name))  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    try:
        recompute()
    finally:
        for handle in handles:
            handle.remove()
    return f"the gradient of {bad[0]}" if bad else "the loss alone (every gradient is finite)"
