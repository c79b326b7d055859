"""The processes of one training, and what they tell each other. Every method is called by all of them, in one order.

Matrices of which each process holds a part are sharded by torch's `fully_shard`, for models larger than one device.
A block's matrices are put together before it runs and taken apart behind it; the tables of the embedding and of the
output form one group of their own. Vectors and numbers, which are little, are whole everywhere. What does the sharding
takes half a second to import, so it is imported where a model is sharded and nowhere else.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import UserError
from ..processes.surroundings import rank_of_environment, size_of_environment

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class PeerLost(Exception):
    """Another process of the training has gone, so that this one cannot go on."""


class Group:
    """A process that trains alone; `Replicas` are several."""

    rank = 0
    size = 1
    in_step = False
    """Whether a model's forward pass needs all processes, so that all of them pass the same items through."""

    @property
    def first(self) -> bool:
        """Whether this is the process that holds the run folder: it alone writes, and speaks."""
        return self.rank == 0

    def owner(self, number: int) -> int:
        """The rank of the process that works on the micro-batch of that number."""
        return number % self.size

    def gather(self, value: _Item) -> list[_Item]:
        """The value of every process, by rank."""
        return [value]

    def summed(self, values: Tensor) -> Tensor:
        """The sum of the tensors of all processes on the CPU; exact where only one of them is not 0."""
        return values

    def together(self, action: Callable[[], _Result]) -> _Result:
        """Run the action in every process. Where it raises UserError in some, all raise that of the lowest rank."""
        return action()

    def first_only(self, action: Callable[[], object]) -> None:
        """Run the action in the first process alone. All raise its UserError."""
        self.together(action if self.first else lambda: None)

    def from_first(self, value: _Item) -> _Item:
        """The first process's value, in every process."""
        return value

    def any_message(self, words: str | None) -> str | None:
        """The message of the lowest rank that has one; None where no process has."""
        return next(filter(None, self.gather(words)), None)

    def share(self, items: Sequence[_Item], compute: Callable[[_Item], _Result]) -> list[_Result]:
        """`compute` of each item, in their order: one process computes it, and all get it."""
        if self.in_step:
            return [compute(item) for item in items]
        mine = [compute(item) for item in items[self.rank :: self.size]]
        parts = self.gather(mine)
        return [parts[number % self.size][number // self.size] for number in range(len(items))]

    def any_signal(self, number: int | None) -> int | None:
        """The highest signal that a process was sent; None where none was."""
        return number

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Raises PeerLost where somebody has gone while torch itself speaks with them, as within a sharded model."""
        yield


ALONE = Group()


class Replicas(Group):
    """The processes of torch's default group, which speak of what is no gradient over the CPU."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def gather(self, value: _Item) -> list[_Item]:
        found: list[Any] = [None] * self.size
        self.met(lambda: dist.all_gather_object(found, value))
        return found

    def summed(self, values: Tensor) -> Tensor:
        self.met(lambda: dist.all_reduce(values))
        return values

    def together(self, action: Callable[[], _Result]) -> _Result:
        problem, made = None, list[_Result]()
        try:
            made.append(action())
        except UserError as error:
            problem = error
        messages = self.gather(None if problem is None else str(problem))
        for rank, message in enumerate(messages):
            if message is not None:
                raise UserError(message if rank == 0 else f"process {rank} of {self.size}: {message}") from problem
        return made[0]

    def from_first(self, value: _Item) -> _Item:
        return self.gather(value if self.first else None)[0]  # type: ignore[return-value]

    def any_signal(self, number: int | None) -> int | None:
        highest = torch.tensor([number or 0])
        self.met(lambda: dist.all_reduce(highest, op=dist.ReduceOp.MAX))
        return int(highest) or None

    def met(self, collective: Callable[[], _Result]) -> _Result:
        """What comes of a call that all of us make together. Raises PeerLost where somebody has gone."""
        try:
            return collective()
        except RuntimeError as error:
            raise self._lost() from error

    @contextmanager
    def noticing(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, dist.DistError) or _OF_A_CONNECTION.search(str(error)):
                raise self._lost() from error
            raise

    def _lost(self) -> PeerLost:
        return PeerLost(
            f"process {self.rank} of {self.size} has lost another one, which says why, here or on its own machine"
        )


_OF_A_CONNECTION = re.compile("gloo|nccl|connection (closed|reset|refused)|broken pipe|socket", re.IGNORECASE)
"""What torch says in an error of a backend that has no class of its own."""


_PATIENCE = timedelta(hours=1)
"""How long one waits for the others, such as for the first while it saves, or measures."""


@contextmanager
def joined(device: torch.device) -> Iterator[Group]:
    """The group that torchrun started this process in, which ends with the context; `ALONE` otherwise.

    device: of this process; gradients on CUDA travel by NCCL, all else by gloo. Raises UserError where the group does
    not come together.
    """
    if size_of_environment() == 1:
        yield ALONE
        return
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
            dist.init_process_group("cpu:gloo,cuda:nccl", timeout=_PATIENCE, device_id=device)
        else:
            dist.init_process_group("gloo", timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"process {rank_of_environment()} of {size_of_environment()} could not join the others at "
            f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: {str(error).splitlines()[0]}"
        ) from error
    try:
        yield Replicas()
        # Who holds the store goes last: torch complains of an answer that another process still waits for.
        with suppress(RuntimeError):
            dist.barrier()
    finally:
        dist.destroy_process_group()


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
