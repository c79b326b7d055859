"""The places where the stream enters the blocks, found in one pass: the argument that a block
changes and the next one takes.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .following import TransplantRefused
from .passes import Passes
from .plan import StackPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The argument by which the stream enters a block's forward."""

    position: int
    name: str

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return kwargs[self.name] if self.name in kwargs else args[self.position]

    def put(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], x: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.name in kwargs:
            return args, {**kwargs, self.name: x}
        return (*args[: self.position], x, *args[self.position + 1 :]), kwargs

    def changed(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], change: Callable[[Tensor], Tensor]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments, with another tensor where one stands there."""
        if self.name not in kwargs and self.position >= len(args):
            return args, kwargs
        value = self.find(args, kwargs)
        return (
            self.put(args, kwargs, change(value)) if isinstance(value, Tensor) else (args, kwargs)
        )


@dataclass(frozen=True, slots=True)
class _Entered:
    """An argument of a block that may be the stream."""

    seat: Seat
    value: Tensor
    version: int
    handed: bool
    """True where the tensor was returned by the block before."""


class _Watched:
    """The arguments of a model's blocks and norms in one pass; the methods are hooks, which know by
    its name the module that they are called for.
    """

    def __init__(self, first: Collection[str]) -> None:
        """first: blocks that are handed nothing by a block before."""
        self.found: dict[str, list[_Entered]] = {}
        """The arguments that may be the stream, by block."""
        self.normed: dict[str, list[Tensor]] = {}
        """The different tensors that each norm is given."""
        self._first = first
        self._entered: dict[str, list[_Entered]] = {}
        self._left: list[Tensor] = []
        """The tensors that the last block has returned."""

    def enter(self, name: str, block: nn.Module, args: Any, kwargs: Any) -> None:
        """Notes what a block is called with."""
        # A decoder's first is not handed the memory by a block of its own.
        before = [] if name in self._first else self._left

        def is_handed(value: Tensor) -> bool:
            return any(_same(value, one) for one in before)

        self._entered[name] = [
            _Entered(seat, value, _version(value), is_handed(value))
            for seat, value in arguments(block, args, kwargs)
        ]

    def leave(self, name: str, block: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Tells by what a block returns which of its arguments may be the stream."""
        left = [one for one in _flat(output) if one.is_floating_point()]
        self._left = left
        shapes = {one.shape for one in left}
        fitting = [one for one in self._entered[name] if one.value.shape in shapes]
        # What a block returns as it came goes through it: positions, a context, or the stream where
        # it is left out.
        returned = {id(one) for one in left}
        changed = [
            one
            for one in fitting
            if id(one.value) not in returned or one.version != _version(one.value)
        ]
        changed = changed or fitting
        self.found[name] = [one for one in changed if one.handed] or changed

    def note_normed(self, name: str, norm: nn.Module, args: Any) -> None:
        """Notes what a norm is given, the same once."""
        known = self.normed.setdefault(name, [])
        if args and not any(torch.equal(args[0], one) for one in known):
            known.append(args[0].clone())


def seats(passes: Passes, plans: Sequence[StackPlan]) -> dict[str, Seat]:
    """Finds the seat of the stream in every block.

    Raises TransplantRefused where it does not show, or where a norm that is to be passed over norms
    other things too.
    """
    blocks = [block.module for one in plans for block in one.blocks]
    norms = Counter(name for one in plans for name in one.all_norms)
    watched = _Watched({one.blocks[0].module for one in plans})
    _watch(passes, watched, blocks, norms)
    for name, count in norms.items():
        if len(watched.normed.get(name, ())) > count:
            raise TransplantRefused(
                f"{name}: this norm is of the residual stream and of other things, which it must "
                "stay"
            )
    found = watched.found
    if missing := [name for name in blocks if not found.get(name)]:
        raise TransplantRefused(
            f"{missing[0]}: none of its arguments has the shape of what it returns"
        )
    # The first block is handed nothing by another: its seat is that of most others.
    chosen = Counter(one.seat for name in blocks for one in found[name] if one.handed)
    return {name: max(found[name], key=lambda one: chosen[one.seat]).seat for name in blocks}


def _watch(
    passes: Passes, watched: _Watched, blocks: Sequence[str], norms: Collection[str]
) -> None:
    """Runs one pass with hooks on these blocks and norms."""
    module_of = passes.model.get_submodule
    handles = [
        module_of(name).register_forward_pre_hook(
            partial(watched.enter, name), with_kwargs=True, prepend=True
        )
        for name in blocks
    ]
    handles += [
        module_of(name).register_forward_hook(partial(watched.leave, name), with_kwargs=True)
        for name in blocks
    ]
    handles += [
        module_of(name).register_forward_pre_hook(partial(watched.note_normed, name))
        for name in norms
    ]
    try:
        passes.outputs()
    finally:
        for handle in handles:
            handle.remove()


def arguments(
    block: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[Seat, Tensor]]:
    """The floating-point tensors that a module is called with, each with where it stands."""
    names = list(inspect.signature(block.forward).parameters)
    given = [(n, names[min(n, len(names) - 1)], value) for n, value in enumerate(args)]
    given += [
        (names.index(name) if name in names else len(names), name, value)
        for name, value in kwargs.items()
    ]
    for position, name, value in given:
        if isinstance(value, Tensor) and value.is_floating_point():
            yield Seat(position=position, name=name), value


def _flat(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    parts = (
        output.values()
        if isinstance(output, Mapping)
        else output
        if isinstance(output, tuple | list)
        else ()
    )
    return [tensor for part in parts for tensor in _flat(part)]


def _same(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.shape == other.shape and torch.equal(one, other))


def _version(x: Tensor) -> int:
    return -1 if x.is_inference() else x._version
