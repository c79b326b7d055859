"""What to say when a loss, a gradient or a weight is no longer a number."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .replicas.group import own_part


class NonFinite(Exception):
    """A run was stopped at a number that is not finite: before the optimiser moves on it, or a checkpoint keeps it."""


def first_bad_weight(model: nn.Module) -> str | None:
    """The first parameter, in the model's order, that is not finite."""
    return next((name for name, parameter in model.named_parameters() if not _finite(parameter)), None)


def unfit_to_keep(model: nn.Module, optimizer: torch.optim.Optimizer) -> str | None:
    """What of a training that goes on from here would not be finite: weights, buffers or the optimiser's state."""
    weight = first_bad_weight(model)
    if weight is not None:
        return f"the weights of {weight} are not finite after the optimiser's step"
    buffers = (name for name, buffer in persistent_buffers(model).items() if not _finite(buffer))
    for name in buffers:
        return f"the buffer {name} is not finite"
    for name, parameter in model.named_parameters():
        for what, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor) and not _finite(value):
                return f"the optimiser's {what} of {name} is not finite"
    return None


def persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that a checkpoint keeps, by name."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(own_part(tensor)).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBad:
    """Where a number that is not finite came from."""

    micro_batch: int
    """Counted from 0 over all epochs."""
    parameter: str
    """The first, in the order of the backward pass, whose gradient is not finite."""


def first_bad_gradient(model: nn.Module, micro_batch: int, recompute: Callable[[], object]) -> FirstBad | None:
    """The first gradient of a micro-batch that is not finite, in the order of a repeated backward pass.

    recompute: runs its forward and backward again, with the same seed.
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
    return FirstBad(micro_batch=micro_batch, parameter=bad[0]) if bad else None


def what_went_first(loss: float, bad: FirstBad | None) -> str:
    """In words, where finite weights gave a loss or a gradient that is not finite."""
    what = "the gradient" if math.isfinite(loss) else f"the loss ({loss})"
    if bad is not None:
        return f"{what} is not finite; first seen in the gradient of {bad.parameter}, in micro-batch {bad.micro_batch}"
    return f"{what} is not finite, though every single gradient is" + (
        ": the sum of their squares overflows" if math.isfinite(loss) else ""
    )
