"""Tensors of which each process holds a part, torch's DTensors, beside plain ones, which are whole
everywhere.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


def is_part(tensor: Tensor) -> bool:
    """Tells whether other processes hold the rest of it."""
    return hasattr(tensor, "full_tensor")


def own_part(tensor: Tensor) -> Tensor:
    """Returns what this process holds of it: all, where it is not sharded."""
    part: Tensor = tensor.to_local() if is_part(tensor) else tensor  # type: ignore[attr-defined]
    return part


def whole(tensor: Tensor) -> Tensor:
    """Returns all of it, put together from all processes, which call this together."""
    if not is_part(tensor):
        return tensor
    # What comes back may still be under way, which a copy waits for.
    found: Tensor = tensor.full_tensor().clone()  # type: ignore[attr-defined]
    return found


def parted_as(tensor: Tensor, like: Tensor) -> Tensor:
    """Returns a whole tensor that every process has, parted as another one of its shape is."""
    if not is_part(like):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    # Every process has read the same file: nothing need be sent.
    return distribute_tensor(
        tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )


def local_square(tensors: Iterable[Tensor]) -> float:
    """Returns the sum of the squares of what this process holds of them, in float64."""
    total = torch.zeros((), dtype=torch.float64)
    for tensor in tensors:
        total += own_part(tensor).double().square().sum().cpu()
    return float(total)
