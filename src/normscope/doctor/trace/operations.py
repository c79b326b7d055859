"""The operations on tensors in one forward pass, as a graph whose parts can be computed again with
other values.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

PRODUCTS = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "convolution", "_grouped_mm"}
)
REARRANGING = frozenset(
    {
        "view",
        "reshape",
        "_unsafe_view",
        "transpose",
        "t",
        "permute",
        "unsqueeze",
        "squeeze",
        "clone",
        "detach",
        "alias",
        "_to_copy",
        "expand",
        "slice",
        "rewritten",
    }
)
SOFTMAX = frozenset({"_softmax", "_safe_softmax"})
SENDING = frozenset({"topk", "sort", "argsort", "argmax", "nonzero"})
"""The operations that choose tokens, or send them somewhere."""

FUSED = "scaled_dot_product"
"""The part of the name of every operation that computes scores, softmax and mean in one from
queries, keys and values.
"""
STACKING = frozenset({"stack", "cat"})
BY_NUMBER = frozenset(
    {
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "neg",
        "abs",
        "pow",
        "square",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "exp",
        "log",
        "tanh",
        "sigmoid",
        "relu",
        "gelu",
        "silu",
        "mish",
        "elu",
        "leaky_relu",
        "hardswish",
        "softplus",
        "erf",
        "clamp",
        "clone",
        "detach",
        "alias",
        "_to_copy",
    }
)
"""Operations on each number alone, or on numbers in the same place."""
RESHAPING = frozenset({"view", "reshape", "_unsafe_view"})

_Node = TypeVar("_Node", bound=Hashable)


def walked(start: _Node, onwards: Callable[[_Node], Iterable[_Node]]) -> Iterator[_Node]:
    """A node and all that `onwards` leads to from it, each once and after one that leads to it."""
    seen, todo = {start}, [start]
    while todo:
        at = todo.pop()
        yield at
        new = [node for node in dict.fromkeys(onwards(at)) if node not in seen]
        seen.update(new)
        todo += new


def bits(numbers: int) -> Iterator[int]:
    """The numbers in a set of them as bits, the lowest first."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def apart(x: Tensor, streams: int, width: int) -> Tensor | None:
    """(..., n, D) or (..., n·D) as (N, n, D); None for streams that lie in another dimension."""
    if not x.shape or x.numel() % (streams * width) or x.shape[-1] not in (width, streams * width):
        return None
    if streams > 1 and x.shape[-1] == width and (x.ndim < 2 or x.shape[-2] != streams):
        return None
    return x.reshape(-1, streams, width)


_Place = tuple[tuple[int, ...], tuple[int, ...], int]
"""The place of a tensor's elements in its memory, as `as_strided` takes it: shape, strides and
offset.
"""


def place_of(tensor: Tensor) -> _Place:
    """Returns the place of a strided tensor in its memory."""
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())


def _reach(place: _Place) -> int:
    """Returns one more than the last element's place in memory."""
    shape, stride, offset = place
    steps = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    return offset if 0 in shape else offset + 1 + steps


def share_memory(one: _Place, other: _Place) -> bool:
    """Tells whether any element lies at both places of one memory."""
    if one == other:
        return True
    taken = torch.zeros(max(_reach(one), _reach(other)), dtype=torch.bool)
    taken.as_strided(*one).fill_(True)
    return bool(taken.as_strided(*other).any())


def overlaid(tensors: Sequence[Tensor], places: Sequence[_Place]) -> Tensor:
    """Returns the tensor at the first place once the tensors are written to their places one after
    the other.

    Raises ValueError where they are not of one dtype.
    """
    first = tensors[0]
    if any(tensor.dtype != first.dtype for tensor in tensors):
        raise ValueError(
            "memory is read in another dtype than it was written in, and cannot be computed again"
        )
    memory = first.new_zeros(max(map(_reach, places)))
    for tensor, where in zip(tensors, places, strict=True):
        memory.as_strided(*where).copy_(tensor)
    return memory.as_strided(*places[0]).clone()


def memory_of(tensor: Tensor) -> int:
    """Returns a number that two tensors share exactly if they share their memory, while both
    exist.
    """
    address: int = tensor.untyped_storage()._cdata
    return address


class Origin(IntEnum):
    """The origin of a value; the largest of its inputs' origins."""

    CONSTANT = 0
    BUFFER = 1
    TRAINABLE = 2
    DATA = 3
    """The model's input."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference, in a recorded call, to the value of that number."""

    number: int


@dataclass(slots=True, kw_only=True)
class TracedValue:
    """A tensor of a forward pass."""

    number: int
    op: str
    """Name of the operation, such as `addmm`, in-place ones without their underscore; `leaf` where
    none made it.
    """
    tensor: Tensor
    """The tensor as it was when it was made: a copy where the model wrote over it later."""
    origin: Origin
    inputs: tuple[int, ...] = ()
    function: Any = None
    """The operation that made it; None of a leaf."""
    args: tuple[Any, ...] = ()
    """The arguments of the call, with `Ref`s in the place of tensors."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    output: int = 0
    """The number of this value among the operation's results."""
    modules: tuple[str, ...] = ()
    """Names of the modules that were running, the outermost first."""
    asked_dtype: torch.dtype | None = None
    """The dtype that the model asks a product for, which under autocast is not the tensor's."""
    names: tuple[str, ...] = ()
    """The names of the parameters that a leaf is, or else of the buffers; of several in its memory
    that begin elsewhere those of all.
    """

    @property
    def shape(self) -> torch.Size:
        return self.tensor.shape

    @property
    def rows(self) -> int:
        """The number of vectors of its last dimension."""
        return self.tensor.numel() // self.shape[-1] if self.shape and self.shape[-1] else 0

    @property
    def module(self) -> str:
        """The innermost module that was running; "" outside of all."""
        return self.modules[-1] if self.modules else ""

    @property
    def is_data(self) -> bool:
        return self.origin == Origin.DATA


UNREPEATABLE = (ValueError, RuntimeError, IndexError)
"""The errors that `again` raises for experts, for layouts in chunks, and for memory that is written
piece by piece: they cannot be computed again with other values.
"""


@dataclass(slots=True)
class Trace:
    """The values of a forward pass in the order in which they were made, and what came out."""

    values: list[TracedValue]
    output: Any = None
    results: tuple[int, ...] = ()
    """Numbers of the tensors in the output, in order, without those inside objects in it, such as
    caches.
    """
    dropped: Mapping[int, float] = field(default_factory=dict)
    """Numbers of the values that training takes a dropout of, with the share that it drops."""
    written: tuple[tuple[Tensor, Tensor], ...] = ()
    """Tensors that the pass was given and wrote into, each with the copy that stands for it as a
    value.
    """

    def leaves(self, number: int) -> list[TracedValue]:
        """Returns the values that no operation made and that a value is computed from; the value
        itself where none made it.
        """
        numbers = walked(number, lambda n: self.values[n].inputs)
        return [value for n in numbers if (value := self.values[n]).op == "leaf"]

    def again(self, replaced: Mapping[int, Tensor], wanted: int) -> Tensor:
        """Returns the value `wanted`, computed again with other tensors for some values and the
        recorded ones for the rest.
        """
        known = dict(replaced)
        for number in self._between(replaced, wanted):
            known[number] = self._computed(self.values[number], known)
        return known.get(wanted, self.values[wanted].tensor)

    def _between(self, sources: Mapping[int, Tensor], wanted: int) -> list[int]:
        """Returns the numbers of what depends on any of the sources and is needed for `wanted`, in
        order.
        """
        first = min(sources)
        needed = set(
            walked(
                wanted,
                lambda n: () if n in sources else [m for m in self.values[n].inputs if m >= first],
            )
        )
        changed = set(sources)
        for number in sorted(needed - changed):
            if changed.intersection(self.values[number].inputs):
                changed.add(number)
        return sorted(changed - set(sources))

    def _computed(self, value: TracedValue, known: Mapping[int, Tensor]) -> Tensor:
        function = value.function
        if function is None:
            raise ValueError(f"value {value.number} is given, not computed")
        writes = function is not overlaid and function._schema.is_mutable

        def filled(argument: Any) -> Any:
            if not isinstance(argument, Ref):
                return argument
            tensor = known.get(argument.number, self.values[argument.number].tensor)
            return tensor.clone() if writes else tensor

        # Other values may lie in memory in another order, in which a view is none.
        function = (
            torch.ops.aten.reshape.default if function is torch.ops.aten.view.default else function
        )
        result = function(*mapped(filled, value.args), **mapped(filled, value.kwargs))
        return result if isinstance(result, Tensor) else tree_leaves(result)[value.output]


def mapped(change: Callable[[Any], Any], argument: Any) -> Any:
    """Returns an operation's arguments, each changed, in their own containers: lists, tuples, and a
    dictionary by keyword.
    """
    if isinstance(argument, list | tuple):
        made = [mapped(change, part) for part in argument]
        return made if isinstance(argument, list) else tuple(made)
    if isinstance(argument, dict):
        return {name: mapped(change, part) for name, part in argument.items()}
    return change(argument)
