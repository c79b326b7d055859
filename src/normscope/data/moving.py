"""Batches on their way to a device."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Batch = TypeVar("Batch", bound=DataclassInstance)


def moved(batch: "Batch", names: Iterable[str], device: torch.device | str) -> "Batch":
    """The batch with these of its tensors on `device`, and the others where they are.

    To CUDA they go from pinned memory, in the order of the device's work: a copy from ordinary memory would wait for
    all of it to be done. torch keeps pinned memory, and gives it out again when the copy has arrived.
    """
    if torch.device(device).type != "cuda":
        return replace(batch, **{name: getattr(batch, name).to(device) for name in names})
    sent: dict[str, Any] = {name: getattr(batch, name).pin_memory().to(device, non_blocking=True) for name in names}
    return replace(batch, **sent)
