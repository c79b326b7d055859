"""The stream followed through a model's own forward: sums with it become the formula's, and what
reads it reads F's x.

Everything else that a block does, with masks, caches, positions, dropout and tuples, goes on as it
was written.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..errors import UserError
from .program import Run


class TransplantRefused(UserError):
    """A model cannot be put under a placement: why, and where."""


_ADDS = {torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__, Tensor.add_}
_WRITES = {Tensor.__iadd__, Tensor.add_}
_LOOKS = {
    Tensor.size,
    Tensor.dim,
    Tensor.ndimension,
    Tensor.numel,
    Tensor.nelement,
    Tensor.is_contiguous,
    Tensor.stride,
    Tensor.element_size,
    Tensor.__len__,
    Tensor.is_floating_point,
    Tensor.is_complex,
    Tensor.get_device,
    torch.is_floating_point,
    torch.is_complex,
    torch.numel,
    torch.is_tensor,
    Tensor.__hash__,
    Tensor.__repr__,
}
"""The functions that read a tensor's shape, dtype or place, and none of its numbers."""
_LOOKED_AT = (
    "shape",
    "dtype",
    "device",
    "ndim",
    "layout",
    "requires_grad",
    "is_cuda",
    "is_cpu",
    "is_meta",
    "is_nested",
    "is_sparse",
    "is_quantized",
    "is_mps",
    "is_xpu",
    "is_leaf",
    "itemsize",
    "nbytes",
    "names",
)
# Sets of functions, made once: torch.compile can look a function up, and not read its name.
_LOOKS |= {getattr(Tensor, name).__get__ for name in _LOOKED_AT if hasattr(Tensor, name)}
_MOVES = {
    Tensor.view,
    Tensor.reshape,
    Tensor.flatten,
    Tensor.unflatten,
    Tensor.squeeze,
    Tensor.unsqueeze,
    Tensor.contiguous,
    Tensor.clone,
    Tensor.to,
    Tensor.float,
    Tensor.half,
    Tensor.bfloat16,
    Tensor.double,
    Tensor.type_as,
    Tensor.view_as,
    Tensor.reshape_as,
    Tensor.transpose,
    Tensor.permute,
    torch.reshape,
    torch.flatten,
    torch.squeeze,
    torch.unsqueeze,
    torch.transpose,
    torch.permute,
    torch.clone,
}
"""The functions that leave the numbers of a tensor as they are."""
_READS_ONLY = ("__index__", "__int__", "__invert__", "requires_grad_", "record_stream")


def _writes(name: str) -> bool:
    """Tells by its name whether a method of tensors writes into its first argument: `add_`,
    `__iadd__`, `__setitem__`.
    """
    is_operator = name == "__setitem__" or name.startswith("__i")
    is_in_place = name.endswith("_") and not name.endswith("__")
    reads = name in _READS_ONLY or not callable(getattr(Tensor, name))
    return (is_operator or is_in_place) and not reads


_WRITING = {getattr(Tensor, name): name for name in dir(Tensor) if _writes(name)}
"""The functions that write into their first argument, each with its name."""
_NORMS = {
    torch.nn.functional.layer_norm,
    torch.layer_norm,
    torch.nn.functional.rms_norm,
    torch.rms_norm,
}

PASSED_OVER: Callable[[Tensor], Tensor] = torch.positive
"""The function that a norm before F calls in place of itself: given the stream it returns what F
reads, and given anything else it returns that unchanged.

So F is handed what it reads, and may read it where nothing can be followed: under checkpoints, in
compiled code.
"""

_Move = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class _ReadInstead(NamedTuple):
    """The tensor that a sub-layer reads in place of one that stands for the stream."""

    place: Tensor
    read: Tensor
    version: int
    """The version of `read` when it was handed over."""


class Following(TorchFunctionMode):
    """Follows the stream of one block by identity, through whatever only gives it another shape or
    dtype.

    stream: the tensor that stands for it in the block's forward. passes_norms: whether norms that
    are called as functions, on the stream itself, are the old placement's, and passed over.
    """

    def __init__(self, run: Run, stream: Tensor, block: str, *, passes_norms: bool) -> None:
        super().__init__()
        self.run = run
        self.block = block
        self.passes_norms = passes_norms
        self.has_gradients, self.compiled = torch.is_grad_enabled(), torch.compiler.is_compiling()
        self.hooks = self._hooks()
        self.places: list[tuple[Tensor, tuple[_Move, ...]]] = [(stream, ())]
        """The tensors that stand for the stream as it is now, each with the moves that led to it
        from the block's own.
        """
        self.past: list[Tensor] = []
        """The tensors that stood for the stream before the last sum."""
        self.has_read = False
        """True once the next sub-layer has begun."""
        self.passed = 0
        """The number of norms called as functions that have been passed over."""
        self.values: list[_ReadInstead] = []
        """The tensors that the sub-layer has read in place of those that stand for the stream."""
        self.needed = self._versions()
        """The values that the formula still has to read, each with its version."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Any = None,
    ) -> Any:
        kwargs = kwargs or {}
        place = self._first_place(args, kwargs)
        if place is None or func in _LOOKS:
            return func(*args, **kwargs)
        if func in _MOVES and self.moves_of(args[0]) is not None:
            return self._moved(func, args, kwargs)
        if func in _ADDS and self.has_read and (branch := self._branch(args)) is not None:
            return self._joined(func, args, branch, kwargs)
        if func in _NORMS and self.passes_norms and self.moves_of(args[0]) is not None:
            self.passed += 1
            return args[0]
        if func in _WRITING and self.moves_of(args[0]) is not None:
            self.refuse(f"{_WRITING[func]} writes into the residual stream")
        if func is PASSED_OVER:
            read = self._read(args[0])
            self.has_read = self.has_read or read is not args[0]
            return read
        self.has_read = True
        return func(*self._read(args), **self._read(kwargs))

    def moves_of(self, x: Any) -> tuple[_Move, ...] | None:
        """Returns the moves by which a tensor was made of the stream; None for any other value."""
        for tensor, moves in self.places:
            if tensor is x:
                return moves
        return None

    def stands_for(self, x: Any) -> bool:
        """Tells whether a value is the stream, as it is now or as it was before the last sum."""
        return self.moves_of(x) is not None or any(x is one for one in self.past)

    def refuse(self, reason: str) -> None:
        """Raise TransplantRefused at this block."""
        raise TransplantRefused(f"{self.block}: {reason}, which a transplant cannot follow")

    def _first_place(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        for value in _values(args, kwargs):
            if self.moves_of(value) is not None:
                return value  # type: ignore[no-any-return]
            if self.past and any(value is one for one in self.past):
                self.refuse("it reads the residual stream of before its last sum")
        return None

    def _moved(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        moved = func(*args, **kwargs)
        moves = self.moves_of(args[0])
        if moved is not args[0] and moves is not None:
            self.places.append((moved, (*moves, (func, args[1:], kwargs))))
        return moved

    def _branch(self, args: tuple[Any, ...]) -> Tensor | None:
        """Returns the tensor that is added to the stream; None where it is not a tensor of the same
        shape.
        """
        if len(args) != 2 or not all(isinstance(value, Tensor) for value in args):
            return None
        ours = [self.moves_of(value) is not None for value in args]
        if ours[0] == ours[1] or args[0].shape != args[1].shape:
            return None
        return args[1] if ours[0] else args[0]  # type: ignore[no-any-return]

    def _joined(
        self, func: Callable[..., Any], args: tuple[Any, ...], branch: Tensor, kwargs: Any
    ) -> Tensor:
        stream = args[1] if args[0] is branch else args[0]
        if self.run.joins == len(self.run.program.reads):
            self.refuse(f"it has more than {self.run.joins} residual sums")
        if kwargs:
            self.refuse(f"its sum is made with {', '.join(kwargs)}")
        if torch.is_grad_enabled() != self.has_gradients:
            self.refuse(
                "its sum is made within an autograd.Function, or where gradients are switched off"
            )
        self._refuse_elsewhere("its sum is made")
        moves = self.moves_of(stream) or ()
        if moves:  # it is added in another shape than the stream's own
            if any(
                move in (Tensor.transpose, torch.transpose, Tensor.permute, torch.permute)
                for move, _, _ in moves
            ):
                self.refuse("its sum is made with the dimensions of the stream in another order")
            branch = branch.reshape(self.places[0][0].shape)
        self.check_unwritten()
        self.run.join(branch)
        self.has_read = False
        self.values = []
        self.needed = self._versions()
        new = branch.detach()
        for move, rest, named in moves:
            new = move(new, *rest, **named)
        new = stream if func in _WRITES and args[0] is stream else new
        self.past += [place for place, _ in self.places if place is not new]
        self.places = [(new, moves)]
        return new

    def _read(self, value: Any) -> Any:
        """Returns a value with what the next sub-layer reads in place of the stream."""
        if isinstance(value, Tensor):
            moves = self.moves_of(value)
            return value if moves is None else self._read_as(value, moves)
        if isinstance(value, tuple | list):
            return (
                type(value)([self._read(one) for one in value])
                if type(value) in (tuple, list)
                else value
            )
        if isinstance(value, dict):
            return {name: self._read(one) for name, one in value.items()}
        return value

    def _read_as(self, place: Tensor, moves: tuple[_Move, ...]) -> Tensor:
        for known in self.values:
            if known.place is place:
                if self._version(known.read) != known.version:
                    self.refuse("it writes into what a sub-layer reads, and reads that again")
                return known.read
        read: Tensor = self.run.read()
        for move, rest, named in moves:
            read = move(read, *rest, **named)
        if read is not place:
            self._refuse_elsewhere("the residual stream is read")
        self.values.append(_ReadInstead(place, read, self._version(read)))
        return read

    def _refuse_elsewhere(self, what: str) -> None:
        """Raise TransplantRefused where what is computed now is computed, or derived, again without
        us.
        """
        if torch.compiler.is_compiling() != self.compiled:
            self.refuse(
                f"{what} within a part of it that is compiled: compile the whole model after the "
                "transplant"
            )
        if self._hooks() != self.hooks:
            self.refuse(
                f"{what} within torch.utils.checkpoint, or other hooks on saved tensors, inside of "
                "its forward"
            )
        if (
            torch.is_grad_enabled() != self.has_gradients
            and not self.compiled
            and _is_within_function()
        ):
            self.refuse(
                f"{what} within an autograd.Function, such as a checkpoint's, inside of its forward"
            )

    def _hooks(self) -> Any:
        """Returns the hooks that pack tensors saved for gradients; None where there are none."""
        return None if self.compiled else torch._C._autograd._top_saved_tensors_default_hooks(True)

    def _version(self, x: Tensor) -> int:
        """Returns how often a tensor has been written into; -1 where that is not counted."""
        return -1 if self.compiled or x.is_inference() else x._version

    def _versions(self) -> list[tuple[Tensor, int]]:
        return [(x, self._version(x)) for x in self.run.needed() if isinstance(x, Tensor)]

    def check_unwritten(self) -> None:
        """Raise TransplantRefused where something has been written into that the formula still has
        to read.
        """
        if any(self._version(x) != version for x, version in self.needed):
            self.refuse("a sub-layer writes into what it reads, which is the residual stream")

    def given_back(self, output: Any, state: Tensor) -> tuple[Any, bool]:
        """Returns a block's output with the state in place of the stream, and whether the stream
        was in it.
        """
        if isinstance(output, Tensor):
            moves = self.moves_of(output)
            if moves is None:
                if any(output is one for one in self.past):
                    self.refuse("it returns the residual stream of before its last sum")
                return output, False
            for move, rest, named in moves:
                state = move(state, *rest, **named)
            return state, True
        if isinstance(output, dict):
            parts = {name: self.given_back(one, state) for name, one in output.items()}
            found = any(one for _, one in parts.values())
            return (
                type(output)(**{name: one for name, (one, _) in parts.items()}) if found else output
            ), found
        if isinstance(output, tuple | list):
            values = [self.given_back(one, state) for one in output]
            found = any(one for _, one in values)
            made = [one for one, _ in values]
            if not found:
                return output, False
            return (type(output)(*made) if hasattr(output, "_fields") else type(output)(made)), True
        return output, False


def _is_within_function() -> bool:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code is not _APPLY:
        frame = frame.f_back
    return frame.f_code is _APPLY


_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]


def _values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """The tensors among a function's arguments, those in lists too."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            for one in value:
                if isinstance(one, Tensor):
                    yield one
