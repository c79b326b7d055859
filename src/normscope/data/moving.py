"""Batches on their way to a device."""

from dataclasses import replace
from typing import Any, ClassVar, Self

import torch


class Batch:
    """What the batches of all corpora have in common: a dataclass of tensors, of which some go to the device."""

    on_device: ClassVar[tuple[str, ...]]
    """The names of those; lengths stay on the CPU, for masks and counts that must not wait for a device."""

    def to(self, device: torch.device | str) -> Self:
        """The same batch with its tensors on `device`; lengths stay on the CPU.

        To CUDA they go from pinned memory, in the order of the device's work: a copy from ordinary memory would wait
        for all of it to be done. torch keeps pinned memory, and gives it out again when the copy has arrived.
        """
        cuda = torch.device(device).type == "cuda"
        batch: Any = self.pin_memory() if cuda else self
        sent = {name: getattr(batch, name).to(device, non_blocking=cuda) for name in self.on_device}
        return replace(batch, **sent)  # type: ignore[no-any-return]

    def pin_memory(self) -> Self:
        """The same batch with what goes to the device in pinned memory; what is there already is not copied.

        torch's DataLoader calls it by this name, in a thread of its own.
        """
        pinned = {name: getattr(self, name).pin_memory() for name in self.on_device}
        return replace(self, **pinned)  # type: ignore[type-var]
