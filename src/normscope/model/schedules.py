"""Numbers of a formula that follow a schedule over updates."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn


class Schedules(nn.Module):
    """A stack's scheduled numbers by name, as buffers: a checkpoint keeps them, an optimiser does not see them."""

    def __init__(self, initial: Mapping[str, float]) -> None:
        super().__init__()
        for name, value in initial.items():
            self.register_buffer(name, torch.tensor(value))

    def value(self, name: str) -> Tensor:
        """The number, a tensor without dimensions."""
        return self.get_buffer(name)


def scheduled_numbers(model: nn.Module) -> dict[str, list[Tensor]]:
    """Every scheduled number of a model by its name in the formula, once for each of its stacks."""
    found: dict[str, list[Tensor]] = {}
    for module in model.modules():
        if isinstance(module, Schedules):
            for name, buffer in module.named_buffers():
                found.setdefault(name, []).append(buffer)
    return found


def set_scheduled(numbers: Mapping[str, Iterable[Tensor]], value: float) -> None:
    """Put all of them at `value`."""
    for buffers in numbers.values():
        for buffer in buffers:
            buffer.fill_(value)
