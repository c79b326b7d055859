"""Tensors that share a piece of memory: where each lies in it, and what one holds after others were written."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor's elements lie in its memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def reach(self) -> int:
        """One more than the last element's place."""
        if 0 in self.shape:
            return self.offset
        return self.offset + 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))

    def view(self, memory: Tensor) -> Tensor:
        """The elements of one-dimensional memory that lie there."""
        return memory.as_strided(self.shape, self.stride, self.offset)


def place_of(tensor: Tensor) -> Place:
    """Where a strided tensor lies."""
    return Place(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))


def overlaid(tensors: Sequence[Tensor], places: Sequence[Place]) -> Tensor:
    """What lies at the first place when the tensors are written to their places one after the other.

    Raises ValueError where they are not of one dtype.
    """
    first = tensors[0]
    if any(tensor.dtype != first.dtype for tensor in tensors):
        raise ValueError("memory is read in another dtype than it was written in, and cannot be computed again")
    memory = first.new_zeros(max(where.reach for where in places))
    for tensor, where in zip(tensors, places, strict=True):
        where.view(memory).copy_(tensor)
    return places[0].view(memory).clone()
