"""The gradient of an update from those of its micro-batches, whichever processes they were computed by.

Floating-point sums depend on their order. `ordered` adds the gradients in one binary tree over the numbers of their
micro-batches, so that any number of processes has the same bits: each adds up its own part of every bucket, which the
others send it, and sends the sum round. That moves as much as a ring's all-reduce where every process has one
micro-batch of an update. `fast` leaves the order to autograd and to the backend.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .group import Group, Replicas

_BUCKET_BYTES = 64 << 20


class TreeSum:
    """Adds lists of tensors in one fixed binary tree over their order; of n it holds at most log2(n) + 1 at a time."""

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
        """The sum of all lists, which are forgotten; there must have been one."""
        _, total = self._waiting.pop()
        while self._waiting:
            total = _added(self._waiting.pop()[1], total)
        return total


class _GradientSum(ABC):
    """Adds the gradients that backward passes leave in `.grad`."""

    @abstractmethod
    def add(self, ranks: Sequence[int]) -> None:
        """Take the gradients of a round: at most one micro-batch each; ranks: whose, in the order of their numbers."""

    @abstractmethod
    def finish(self) -> None:
        """Leave the sum of all rounds in `.grad`."""


def gradient_sum(parameters: Sequence[nn.Parameter], group: Group, *, ordered: bool) -> _GradientSum:
    """How the gradients of these parameters are added."""
    if isinstance(group, Replicas):
        return _OrderedExchange(parameters, group) if ordered else _AllReduced(parameters, group)
    return _OrderedAlone(parameters) if ordered else _Accumulated()


class _Accumulated(_GradientSum):
    """As autograd adds them, one behind the other."""

    def add(self, ranks: Sequence[int]) -> None:
        pass

    def finish(self) -> None:
        pass


class _OrderedAlone(_GradientSum):
    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters, self._sum = parameters, TreeSum()

    def add(self, ranks: Sequence[int]) -> None:
        self._sum.push([_taken(parameter) for parameter in self.parameters])

    def finish(self) -> None:
        for parameter, gradient in zip(self.parameters, self._sum.total(), strict=True):
            parameter.grad = gradient


class _AllReduced(_GradientSum):
    def __init__(self, parameters: Sequence[nn.Parameter], group: Replicas) -> None:
        self.buckets, self.group = list(_buckets(parameters)), group

    def add(self, ranks: Sequence[int]) -> None:
        pass

    def finish(self) -> None:
        for bucket in self.buckets:
            flat = bucket.taken()
            # A sum, not the backend's mean: the loss is divided by the tokens of all before its backward pass.
            self.group.met(lambda flat=flat: dist.all_reduce(flat))  # type: ignore[misc]
            bucket.put(flat)


class _OrderedExchange(_GradientSum):
    def __init__(self, parameters: Sequence[nn.Parameter], group: Replicas) -> None:
        self.group = group
        self.buckets = [(bucket, TreeSum()) for bucket in _buckets(parameters, parts=group.size)]
        self._under_way: list[_Exchange] = []
        """Of the last round: it travels while the next one is computed, so that nobody waits for a longer batch."""

    def add(self, ranks: Sequence[int]) -> None:
        self._arrive()
        self._under_way = [self._sent(bucket, ranks) for bucket, _ in self.buckets]

    def finish(self) -> None:
        self._arrive()
        for bucket, total in self.buckets:
            (part,) = total.total()
            whole = part.new_empty(bucket.padded)
            parts = list(torch.split(whole, part.numel()))
            self.group.met(lambda parts=parts, part=part: dist.all_gather(parts, part))  # type: ignore[misc]
            bucket.put(whole)

    def _arrive(self) -> None:
        """Wait for what is under way, and add it."""
        for (_, total), exchange in zip(self.buckets, self._under_way, strict=False):
            self.group.met(exchange.work.wait)
            for part in exchange.parts():
                total.push([part])
        self._under_way = []

    def _sent(self, bucket: "_Bucket", ranks: Sequence[int]) -> "_Exchange":
        """Send the others their parts of this process's gradients; what comes is its part of theirs."""
        size, length = self.group.size, bucket.padded // self.group.size
        has_one = self.group.rank in ranks
        gone = bucket.taken() if has_one else bucket.empty()
        come = gone.new_empty(length * len(ranks))
        come_sizes = [length * (rank in ranks) for rank in range(size)]
        go_sizes = [length * has_one] * size
        work = self.group.met(lambda: dist.all_to_all_single(come, gone, come_sizes, go_sizes, async_op=True))
        return _Exchange(work=work, gone=gone, come=come, ranks=ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """Parts of a round's gradients on their way."""

    work: dist.Work
    gone: Tensor
    """Held until it has left."""
    come: Tensor
    ranks: Sequence[int]
    """Whose parts come, in the order of their micro-batches' numbers."""

    def parts(self) -> list[Tensor]:
        """In that order."""
        by_rank = dict(zip(sorted(self.ranks), torch.split(self.come, len(self.come) // len(self.ranks)), strict=True))
        return [by_rank[rank] for rank in self.ranks]


class _Bucket:
    """Parameters of one kind whose gradients travel as one vector."""

    def __init__(self, parameters: list[nn.Parameter], parts: int) -> None:
        self.parameters = parameters
        self.length = sum(parameter.numel() for parameter in parameters)
        self.padded = -(-self.length // parts) * parts
        """A length that `parts` processes share evenly."""

    def empty(self) -> Tensor:
        return self.parameters[0].new_empty(0)

    def taken(self) -> Tensor:
        """The gradients end to end, then zeros; the parameters are left without."""
        padding = self.parameters[0].new_zeros(self.padded - self.length)
        return torch.cat([*(_taken(parameter).reshape(-1) for parameter in self.parameters), padding])

    def put(self, flat: Tensor) -> None:
        sizes = [parameter.numel() for parameter in self.parameters]
        for parameter, gradient in zip(self.parameters, torch.split(flat[: self.length], sizes), strict=True):
            # Tensors of their own, as a process alone has them: nothing that reads them sees where they came from.
            parameter.grad = gradient.view_as(parameter).clone()


def _buckets(parameters: Sequence[nn.Parameter], parts: int = 1) -> Iterator[_Bucket]:
    """In the order of the parameters; a bucket has one dtype and device."""
    held: list[nn.Parameter] = []
    for parameter in parameters:
        kind = (parameter.dtype, parameter.device)
        held_bytes = sum(one.nbytes for one in held)
        if held and ((held[0].dtype, held[0].device) != kind or held_bytes + parameter.nbytes > _BUCKET_BYTES):
            yield _Bucket(held, parts)
            held = []
        held.append(parameter)
    if held:
        yield _Bucket(held, parts)


def _taken(parameter: nn.Parameter) -> Tensor:
    """The parameter's gradient, of zeros where the backward pass did not reach it; the parameter is left without."""
    gradient, parameter.grad = parameter.grad, None
    return torch.zeros_like(parameter) if gradient is None else gradient


def _added(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    torch._foreach_add_(left, right)
    return left
