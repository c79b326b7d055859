"""The gradient of an update: of the mean loss per target token over all its micro-batches.

And what to say when a loss, a gradient or a weight is no longer a number.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoint import persistent_buffers
from .device import Precision, autocast, seed_micro_batch
from .protocol import Feed, Objective
from .together.parts import own_part


class NonFinite(Exception):
    """A run was stopped at a number that is not finite: before the optimiser moves on it, or a
    checkpoint keeps it.
    """


def first_bad_weight(model: nn.Module) -> str | None:
    """Returns the first parameter, in the model's order, that is not finite."""
    return next(
        (name for name, parameter in model.named_parameters() if not _finite(parameter)), None
    )


def unfit_to_keep(model: nn.Module, optimizer: torch.optim.Optimizer) -> str | None:
    """Returns what would not be finite in a training that goes on from here: weights, buffers or
    the optimiser's state; None where all is.
    """
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


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(own_part(tensor)).all())


def first_bad_gradient(model: nn.Module, recompute: Callable[[], object]) -> str:
    """Returns the first parameter, in the order of a backward pass, whose gradient is not finite;
    "" without one.

    recompute: runs the forward and backward of a micro-batch.
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
    return bad[0] if bad else ""


def what_went_first(loss: float, bad: str) -> str:
    """Says what was not finite first where finite weights gave a loss or a gradient that is not
    finite. bad: as `first_bad` says it.
    """
    what = "the gradient" if math.isfinite(loss) else f"the loss ({loss})"
    if bad:
        return f"{what} is not finite; first seen in {bad}"
    return f"{what} is not finite, though every single gradient is" + (
        ": the sum of their squares overflows" if math.isfinite(loss) else ""
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """The losses of an update."""

    loss: float
    """Mean per target token, in nats; what is minimised."""
    nll: float
    """Mean negative log-likelihood per target token, in nats."""
    tokens: int
    """Target tokens of all micro-batches."""


class TreeSum:
    """Adds lists of tensors in one fixed binary tree over their order; of n it holds at most
    log2(n) + 1 at a time.

    The error of such a sum grows with log2(n), and not with n as when they are added one behind the
    other.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, list[Tensor]]] = []
        """Sums of 2^height lists that stood beside each other, the highest first."""

    def push(self, tensors: list[Tensor]) -> None:
        """Add the next list, whose tensors may be written to from here on."""
        height = 0
        while self._waiting and self._waiting[-1][0] == height:
            tensors = _added(self._waiting.pop()[1], tensors)
            height += 1
        self._waiting.append((height, tensors))

    def total(self) -> list[Tensor]:
        """Returns the sum of all lists, which are forgotten; there must have been one."""
        _, total = self._waiting.pop()
        while self._waiting:
            total = _added(self._waiting.pop()[1], total)
        return total


def _added(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    torch._foreach_add_(left, right)
    return left


class UpdateGradients:
    """Leaves the gradients of an update in `.grad`."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        *,
        forward_model: nn.Module,
        feed: Feed,
        seed: int,
        device: torch.device,
        precision: Precision,
    ) -> None:
        """forward_model: `model`, or what torch.compile has made of it."""
        self.model = model
        self.objective = objective
        self.forward_model = forward_model
        self.feed = feed
        self.seed = seed
        self.device = device
        self.precision = precision
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def __call__(self, numbers: range) -> Losses:
        """Returns the gradients of the micro-batches of these numbers, added in one tree over their
        order.
        """
        # An update's batches are known before its first backward pass, so each is divided by the
        # tokens of all.
        batches = {number: self.feed(number) for number in numbers}
        tokens = sum(map(self.objective.target_tokens, batches.values()))
        loss_sum = nll_sum = 0.0
        gradients, reached = TreeSum(), set[nn.Parameter]()
        self.model.zero_grad(set_to_none=True)
        for number, batch in batches.items():
            loss, nll = self._backward(number, batch, tokens)
            loss_sum, nll_sum = loss_sum + loss, nll_sum + nll
            reached.update(parameter for parameter in self.parameters if parameter.grad is not None)
            gradients.push([_taken(parameter) for parameter in self.parameters])
        for parameter, gradient in zip(self.parameters, gradients.total(), strict=True):
            parameter.grad = gradient if parameter in reached else None
        return Losses(loss=loss_sum / tokens, nll=nll_sum / tokens, tokens=tokens)

    def first_bad(self, numbers: range) -> str:
        """Compute each micro-batch's own gradients again; in words, where the first is that is not
        finite, or "".
        """
        for number in numbers:  # counted from 0 over all epochs
            parameter = first_bad_gradient(self.model, partial(self._alone, number))
            if parameter:
                return f"the gradient of {parameter}, in micro-batch {number}"
        return ""

    def _alone(self, number: int) -> None:
        self.model.zero_grad(set_to_none=True)
        batch = self.objective.micro_batch(number)
        self._backward(number, batch, self.objective.target_tokens(batch))

    def _backward(self, number: int, batch: Any, tokens: int) -> tuple[float, float]:
        """Add the batch's part to `.grad`; its loss and negative log-likelihood, summed over its
        target tokens.
        """
        self.model.train()
        seed_micro_batch(self.seed, number)
        with autocast(self.device, self.precision):
            loss, nll = self.objective.loss_sums(self.forward_model, batch)
        (loss / tokens).backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), float(nll)


def _taken(parameter: nn.Parameter) -> Tensor:
    """Returns the parameter's gradient, of zeros where the backward pass did not reach it; the
    parameter is left without.
    """
    gradient, parameter.grad = parameter.grad, None
    return torch.zeros_like(parameter) if gradient is None else gradient
