"""Matrices of which each process holds a part: torch's `fully_shard`, for models that one device cannot hold.

A block's matrices are put together before it runs and taken apart behind it; the tables of the embedding and of the
output form one group of their own. Vectors and numbers, which are little, are whole everywhere. What does the sharding
takes half a second to import, so it is imported where a model is sharded and nowhere else.
"""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .group import Replicas


def shard(model: nn.Module, blocks: Iterable[nn.Module], kept: Iterable[nn.Parameter], group: Replicas) -> None:
    """Have every process of the group keep its part of the parameters alone, but for those of `kept`.

    blocks: modules that are put together one at a time; what is in none of them is together from the first to the last.
    Sums of gradients are sums, not the backend's means: the loss is divided by the tokens of all, and gloo takes its
    mean for a sum (pytorch#162338).
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    group.in_step = True
    left = set(kept)
    mesh = init_device_mesh(next(model.parameters()).device.type, (group.size,))
    for module in (*blocks, model):
        fully_shard(module, mesh=mesh, ignored_params=left & set(module.parameters()))
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def take_apart(model: nn.Module) -> None:
    """Leave each process its parts alone: what a pass without gradients has put together stays so otherwise."""
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()  # type: ignore[operator]


def is_part(tensor: Tensor) -> bool:
    """Whether other processes hold the rest of it: whether it is one of torch's DTensors."""
    return hasattr(tensor, "full_tensor")


def own_part(tensor: Tensor) -> Tensor:
    """What this process holds of it: all, where it is not sharded."""
    part: Tensor = tensor.to_local() if is_part(tensor) else tensor  # type: ignore[attr-defined]
    return part


def whole(tensor: Tensor) -> Tensor:
    """All of it, put together from all processes, which call this together."""
    if not is_part(tensor):
        return tensor
    # What comes back may still be under way, which a copy waits for.
    found: Tensor = tensor.full_tensor().clone()  # type: ignore[attr-defined]
    return found


def parted_as(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor that every process has, parted as another one of its shape is."""
    if not is_part(like):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    # Every process has read the same file: nothing need be sent.
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients, wherever their parts are; the same in every process."""
    parts = [own_part(gradient) for gradient in gradients if is_part(gradient)]
    others = torch.nn.utils.get_total_norm([gradient for gradient in gradients if not is_part(gradient)])
    if not parts:
        return others
    squares = torch.nn.utils.get_total_norm(parts).double().square()
    dist.all_reduce(squares)
    return (squares + others.double().square()).sqrt().to(others.dtype)


def gradient_norms(model: nn.Module) -> dict[str, float]:
    """As `measure.gradient_norms`, of a model that may be sharded; the same in every process."""
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    squares = torch.tensor(
        [float(own_part(gradient).double().square().sum()) for gradient in gradients.values()], dtype=torch.float64
    )
    parts = torch.tensor([is_part(gradient) for gradient in gradients.values()])
    added = squares * parts
    dist.all_reduce(added)
    found = torch.where(parts, added, squares).sqrt().tolist()
    return dict(zip(gradients, found, strict=True))


def scale(gradients: Sequence[Tensor], factor: float) -> None:
    """Multiply the gradients by a number, in place."""
    torch._foreach_mul_([own_part(gradient) for gradient in gradients], factor)
