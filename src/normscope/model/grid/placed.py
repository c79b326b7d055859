"""What every module on (batch, time, width) tensors under a placement has in common: it cannot train by mistake without
what its placement asks of training.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..stack import Stack


class Placed(nn.Module):
    """Stacks that refuse a forward pass which would not be their placement's.

    Three things that some placements ask for happen outside of any forward pass: initial values from one batch (Admin),
    weights put back to length 1 after every update (nGPT), and numbers that follow a schedule over updates
    (branch-norm, pre-to-post). `normscope.profile` sees to the first and `normscope.attach` to the
    others; a pass that comes before them raises RuntimeError, in training mode alone for what `attach` sees to.
    """

    profiled: Tensor
    """Whether initial values were taken from a batch, where a placement asks for it; a checkpoint keeps it."""
    updates: Tensor
    """Updates so far, where numbers follow a schedule; a checkpoint keeps them."""

    def watch(self) -> None:
        """Begin to watch over the stacks; at the end of a constructor."""
        self.unready = self.profiling = self.attached = False
        self.unattended = self._unattended()
        self.register_buffer("profiled", None)
        self.register_buffer("updates", None)
        if any(stack.placement.is_profiled() for stack in self.stacks()):
            self.profiled, self.unready = torch.tensor(False), True
        if self.scheduled:
            self.updates = torch.tensor(0)
        self.register_load_state_dict_post_hook(_loaded)  # type: ignore[no-untyped-call]

    def stacks(self) -> Iterator[Stack]:
        """In the order of the forward pass."""
        yield from (module for module in self.modules() if isinstance(module, Stack))

    @property
    def scheduled(self) -> tuple[str, ...]:
        """Names of the numbers that follow a schedule."""
        return tuple(sorted({name for stack in self.stacks() for name, _ in stack.schedules.named_buffers()}))

    def set_profiled(self) -> None:
        """Initial values are taken."""
        if self.profiled is not None:
            self.profiled.fill_(True)
        self.unready = False

    def check(self) -> None:
        """Raise RuntimeError for a forward pass that would not be the placement's."""
        if self.unready and not self.profiling:
            raise RuntimeError(
                f"placement {self._name()} takes initial values from one batch: call normscope.profile(model, lambda: "
                "model(batch)) once before anything else, or load the weights of a model for which that was done"
            )
        if self.training and torch.is_grad_enabled() and self.unattended and not self.attached:
            raise RuntimeError(
                f"placement {self._name()} {self.unattended}: call normscope.attach(model, optimizer) when the "
                "optimiser is made, or model.eval() where nothing is to be trained"
            )

    def _unattended(self) -> str:
        """What has to happen at every update, in words; "" where nothing has to."""
        if self.scheduled:
            return f"has numbers that follow a schedule over updates ({', '.join(self.scheduled)})"
        if any(stack.placement.unit_vectors for stack in self.stacks()):
            return "puts weights back to length 1 after every update"
        return ""

    def _name(self) -> str:
        return repr(next(self.stacks()).placement.name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy has no optimiser of its own.
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.attached = False


def _loaded(module: Any, incompatible_keys: Any) -> None:
    if module.profiled is not None:
        module.unready = not bool(module.profiled)
