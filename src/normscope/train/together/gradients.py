"""The gradient of an update whose micro-batches several processes share out."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn

from ..device import Precision, autocast, seed_micro_batch
from ..gradients import Losses, first_bad_gradient
from ..protocol import Feed, Objective
from .parts import own_part
from .sharing import Sharing

_NOT_AGAIN = (
    "the sum over processes, though every batch's own gradient is finite when computed again"
)


class SharedGradients:
    """Leaves the gradients of an update in `.grad`, those of all processes; as `UpdateGradients`
    does for one.
    """

    def __init__(
        self,
        sharing: Sharing,
        objective: Objective,
        *,
        feed: Feed,
        seed: int,
        device: torch.device,
        precision: Precision,
    ) -> None:
        self.sharing = sharing
        self.objective = objective
        self.feed = feed
        self.seed = seed
        self.device = device
        self.precision = precision
        self.group = sharing.group

    def __call__(self, numbers: range) -> Losses:
        """Returns the gradients of the mean loss per target token of all micro-batches of these
        numbers.
        """
        batches = {number: self.feed(number) for number in self.group.owned(numbers)}
        own = sum(map(self.objective.target_tokens, batches.values()))
        tokens = int(self.group.total([own])[0])
        passes = [(number, batch, 1.0) for number, batch in batches.items()]
        if self.sharing.in_step and len(passes) < -(-len(numbers) // self.group.size):
            # Who has one batch less makes a pass that counts nothing.
            passes.append((*passes[-1][:2], 0.0))
        loss_sum = nll_sum = 0.0
        self.sharing.model.zero_grad(set_to_none=True)
        for place, (number, batch, weight) in enumerate(passes, 1):
            is_last = place == len(passes)
            with nullcontext() if is_last else self.sharing.before_last_pass():
                loss, nll = self._backward(number, batch, tokens, weight)
            loss_sum += weight * loss
            nll_sum += weight * nll
        self.sharing.finish()
        loss_sum, nll_sum = self.group.total([loss_sum, nll_sum])
        return Losses(loss=loss_sum / tokens, nll=nll_sum / tokens, tokens=tokens)

    def first_bad(self, numbers: range) -> str:
        """Returns the first bad gradient as `UpdateGradients` does, whichever process has computed
        it.
        """
        if self.sharing.in_step:
            return self._first_bad_in_step(numbers)
        found: list[tuple[int, str]] = []
        for number in self.group.owned(numbers):
            parameter = first_bad_gradient(self.sharing.model, partial(self._alone, number))
            if parameter:
                found.append((number, parameter))
                break
        everywhere = [one for several in self.group.gather(found) for one in several]
        return self._told(*min(everywhere)) if everywhere else _NOT_AGAIN

    def _first_bad_in_step(self, numbers: range) -> str:
        """All processes pass the same batch through: their sum is not finite where it is not."""
        names = [name for name, _ in self.sharing.model.named_parameters()]
        for number in numbers:
            self.sharing.model.zero_grad(set_to_none=True)
            batch = self.objective.micro_batch(number)
            self._backward(number, batch, self.objective.target_tokens(batch), 1.0)
            bad = {
                name
                for name, parameter in self.sharing.model.named_parameters()
                if parameter.grad is not None
                and not bool(torch.isfinite(own_part(parameter.grad)).all())
            }
            everywhere = set[str]().union(*self.group.gather(bad))
            if everywhere:
                # A backward pass comes from the end of the model.
                return self._told(number, max(everywhere, key=names.index))
        return _NOT_AGAIN

    def _told(self, number: int, parameter: str) -> str:
        rank = number % self.group.size
        return (
            f"the gradient of {parameter}, in micro-batch {number}, which process {rank} of "
            f"{self.group.size} has computed"
        )

    def _alone(self, number: int) -> None:
        model = self.sharing.model
        model.zero_grad(set_to_none=True)
        batch = self.objective.micro_batch(number)
        loss, _ = self._losses(lambda work: work(model), number, batch)
        (loss / self.objective.target_tokens(batch)).backward()

    def _backward(self, number: int, batch: Any, tokens: int, weight: float) -> tuple[float, float]:
        with self.group.noticing():
            loss, nll = self._losses(self.sharing.passing, number, batch)
            (loss / tokens * (self.sharing.factor * weight)).backward()
        return float(loss.detach()), float(nll)

    def _losses(
        self, passing: Callable[[Callable[[nn.Module], Any]], Any], number: int, batch: Any
    ) -> Any:
        self.sharing.model.train()
        seed_micro_batch(self.seed, number)
        with autocast(self.device, self.precision):
            return passing(lambda model: self.objective.loss_sums(model, batch))
