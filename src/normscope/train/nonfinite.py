"""What to say when a loss, a gradient or a weight is no longer a number."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class NonFinite(Exception):
    """A run was stopped at a number that is not finite: before the optimiser moves on it, or a checkpoint keeps it."""


def first_bad_weight(model: nn.Module) -> str | None:
    """The first parameter, in the model's order, that is not finite."""
    bad = (name for name, parameter in model.named_parameters() if not bool(torch.isfinite(parameter).all()))
    return next(bad, None)


def what_went_first(model: nn.Module, loss: float, recompute: Callable[[], object]) -> str:
    """Where finite weights gave a loss or a gradient that is not finite: the first gradient, in the order of a repeated
    backward pass, that is not.

    recompute: runs forward and backward again, with the same batches and seeds.
    """
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
    what = "the gradient" if math.isfinite(loss) else f"the loss ({loss})"
    if bad:
        return f"{what} is not finite; first seen in the gradient of {bad[0]}"
    return f"{what} is not finite, though every single gradient is" + (
        ": the sum of their squares overflows" if math.isfinite(loss) else ""
    )
