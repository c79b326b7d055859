"""The gradient of an update: of the mean loss per target token over all its micro-batches, whoever works on them.

And what to say when a loss, a gradient or a weight is no longer a number.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .checkpoint import persistent_buffers
from .device import Precision, autocast, seed_micro_batch
from .group import Group, is_part, own_part
from .protocol import Feed, Objective
from .sums import gradient_sum

_Reduction = Literal["ordered", "fast"]


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


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(own_part(tensor)).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstBad:
    """Where a number that is not finite came from."""

    micro_batch: int
    """Counted from 0 over all epochs."""
    parameter: str
    """The first, in the order of the backward pass, whose gradient is not finite."""


def first_bad_gradient(model: nn.Module, micro_batch: int, recompute: Callable[[], object]) -> _FirstBad | None:
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
    return _FirstBad(micro_batch=micro_batch, parameter=bad[0]) if bad else None


def what_went_first(loss: float, bad: _FirstBad | None) -> str:
    """In words, where finite weights gave a loss or a gradient that is not finite."""
    what = "the gradient" if math.isfinite(loss) else f"the loss ({loss})"
    if bad is not None:
        return f"{what} is not finite; first seen in the gradient of {bad.parameter}, in micro-batch {bad.micro_batch}"
    return f"{what} is not finite, though every single gradient is" + (
        ": the sum of their squares overflows" if math.isfinite(loss) else ""
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Of an update."""

    loss: float
    """Mean per target token, in nats; what is minimised."""
    nll: float
    """Mean negative log-likelihood per target token, in nats."""
    tokens: int
    """Target tokens of all micro-batches."""


class UpdateGradients:
    """Leaves the gradients of an update in `.grad`, the same in every process of the group."""

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
        reduction: _Reduction,
        group: Group,
    ) -> None:
        """forward_model: `model`, or what torch.compile has made of it."""
        self.model, self.objective, self.forward_model, self.group = model, objective, forward_model, group
        self.feed = feed
        self.seed, self.device, self.precision = seed, device, precision
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # The parts of a sharded model are added up by its backward passes themselves.
        added = [parameter for parameter in self.parameters if not is_part(parameter)]
        self.sum = gradient_sum(added, group, ordered=reduction == "ordered")

    def __call__(self, numbers: range) -> Losses:
        """The gradients of the micro-batches of these numbers, which the processes of the group share out."""
        # An update's batches are known before its first backward pass, so each is divided by the tokens of all.
        batches = {number: self.feed(number) for number in numbers if self.group.owner(number) == self.group.rank}
        tokens = sum(
            self.objective.target_tokens(batches[number]) if number in batches else self.objective.tokens_of(number)
            for number in numbers
        )
        sums = torch.zeros(len(numbers), 2, dtype=torch.float64)
        reached = torch.zeros(len(self.parameters), dtype=torch.float64)
        self.model.zero_grad(set_to_none=True)
        for round_numbers in self._rounds(numbers):
            for number in round_numbers:
                if number in batches:
                    sums[number - numbers.start] = self._backward(number, batches[number], tokens)
                    reached += torch.tensor([parameter.grad is not None for parameter in self.parameters])
            self.sum.add([self.group.owner(number) for number in round_numbers])
        self.sum.finish()
        known = self.group.summed(torch.cat([sums.flatten(), reached]))
        for parameter, times in zip(self.parameters, known[2 * len(numbers) :].tolist(), strict=True):
            if not times:
                parameter.grad = None
        loss_sum = nll_sum = 0.0
        for loss, nll in known[: 2 * len(numbers)].view(-1, 2).tolist():
            loss_sum, nll_sum = loss_sum + loss, nll_sum + nll
        return Losses(loss=loss_sum / tokens, nll=nll_sum / tokens, tokens=tokens)

    def first_bad(self, numbers: range) -> _FirstBad | None:
        """Compute each micro-batch's own gradients again; the first that is not finite, whichever process has it.

        None of a sharded model, whose gradients are sums over processes before anybody sees them.
        """
        if any(map(is_part, self.parameters)):
            return None
        found = None
        for number in numbers:
            if found is None and self.group.owner(number) == self.group.rank:
                found = first_bad_gradient(self.model, number, lambda number=number: self._alone(number))  # type: ignore[misc]
        return min(filter(None, self.group.gather(found)), key=lambda bad: bad.micro_batch, default=None)

    def _rounds(self, numbers: range) -> Iterator[range]:
        """As many numbers at a time as there are processes: each has one of them."""
        for start in range(0, len(numbers), self.group.size):
            yield numbers[start : start + self.group.size]

    def _alone(self, number: int) -> None:
        self.model.zero_grad(set_to_none=True)
        batch = self.objective.micro_batch(number)
        self._backward(number, batch, self.objective.target_tokens(batch))

    def _backward(self, number: int, batch: Any, tokens: int) -> Tensor:
        """Add the batch's part to `.grad`; its loss and negative log-likelihood, summed over its target tokens."""
        self.model.train()
        seed_micro_batch(self.seed, number)
        with autocast(self.device, self.precision):
            loss, nll = self.objective.loss_sums(self.forward_model, batch)
        (loss / tokens).backward()  # type: ignore[no-untyped-call]
        return torch.tensor([float(loss.detach()), float(nll)], dtype=torch.float64)
