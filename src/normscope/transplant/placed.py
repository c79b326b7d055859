"""Modules under another class: blocks whose forward is followed, norms that are passed over, and
what a formula adds.

Classes are swapped, and forwards of instances left alone: checkpointing that a library puts into a
class's forward, deep copies, pickles and the hooks of FSDP then go on as for any module.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..model.placed import PlacedParameters, Schedules
from ..placement.symbol import ParameterSpec
from .following import PASSED_OVER, Following, TransplantRefused
from .later import Part
from .meeting import Meeting
from .program import Program, Run
from .seats import Seat

PLACED = "placed"
"""The name in a block under which all that a formula adds to it stands."""
READER = "reader"
"""The kind of a module that is handed what it reads."""
PROJECTION = "projection"
"""The kind of a module that makes queries or keys, which are normed."""
ATTENTION = "attention"
"""The kind of a module whose queries and keys are normed where they meet."""
SCORES = "placed_scores"
"""The name in an attention under which these norms stand."""


class _AddedNorms(nn.ModuleDict):
    """Norms that were not in the model."""


class _AddedPart(nn.Module):
    """The norms and numbers that a formula adds at one place of a block."""

    def __init__(
        self, norms: Mapping[str, nn.Module], numbers: Mapping[str, ParameterSpec]
    ) -> None:
        super().__init__()
        self.norms = _AddedNorms(norms)
        self.numbers = PlacedParameters(numbers)


class Added(nn.Module):
    """All that a formula adds to one block, by place."""

    def __init__(
        self,
        norms: Mapping[str, Mapping[str, nn.Module]],
        numbers: Mapping[str, Mapping[str, ParameterSpec]],
        schedules: Mapping[str, float],
    ) -> None:
        """norms: of every place, by their names; numbers: the same, for a place that has some."""
        super().__init__()
        self.places = tuple(place for place in norms if norms[place] or place in numbers)
        for place in self.places:
            self.add_module(place, _AddedPart(norms[place], numbers.get(place, {})))
        self.schedules = Schedules(schedules)

    def number(self, kind: str, part: Part) -> Tensor:
        """Returns a trained or a scheduled number of the formula."""
        place, name = part
        return (
            self.schedules.value(name)
            if kind == "scheduled"
            else getattr(self, place).numbers[name]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The parts that a placed block runs beside its own forward."""

    name: str
    """The block's path in the model, for messages."""
    seat: Seat
    program: Program
    reused: Mapping[Part, nn.Module]
    """Norms of the model that stand for the formula's."""
    passes_norms: bool
    """True where norms that the block's forward calls as functions are passed over."""

    def norms(self, added: Added) -> dict[Part, Callable[..., Any]]:
        """Returns every norm of the formula, as the function that applies it."""
        made: dict[Part, Callable[..., Any]] = {
            part: _applied(norm) for part, norm in self.reused.items()
        }
        own = ((place, getattr(added, place).norms.items()) for place in added.places)
        return made | {(place, name): norm for place, norms in own for name, norm in norms}


def _applied(norm: nn.Module) -> Callable[..., Any]:
    """Returns a norm as its own class applies it, where its forward is passed over."""
    is_swapped = hasattr(type(norm), "swapped_kind")
    return functools.partial(type(norm).original.forward, norm) if is_swapped else norm  # type: ignore[attr-defined]


_MADE: dict[tuple[str, type], type] = {}


def swapped_class(kind: str, original: type) -> type:
    """Returns the class "block", "norm", "inner norm", "reader", "projection" or "attention" that
    stands for another one: a subclass of the same name, made once.
    """
    if (kind, original) not in _MADE:
        own = (
            {"__call__": _call_of_reader(original)}
            if kind == READER
            else {"forward": _FORWARDS[kind](original)}
        )
        _MADE[kind, original] = type(
            original.__name__,
            (original,),
            {
                **own,
                "original": original,
                "swapped_kind": kind,
                "__module__": original.__module__,
                "__qualname__": original.__qualname__,
                "__doc__": original.__doc__,
                "__reduce_ex__": _reduced,
            },
        )
    return _MADE[kind, original]


def swap(module: nn.Module, kind: str) -> None:
    """Give a module the class of a kind. Raises TransplantRefused where its own forward would hide
    it.
    """
    if kind != READER and "forward" in vars(module):
        raise TransplantRefused(
            f"a {type(module).__name__} has a forward of its own beside its class's, such as hooks "
            "of accelerate or a patch put there: take it away "
            "(accelerate.hooks.remove_hook_from_module), and put it back afterwards"
        )
    module.__class__ = swapped_class(kind, type(module))


def swap_back(module: nn.Module) -> None:
    """Give it its own class again."""
    module.__class__ = type(module).original  # type: ignore[attr-defined]


def _reduced(self: nn.Module, protocol: Any) -> tuple[Any, ...]:
    # By the original class: pickle finds none that was made while the program ran. A reader that
    # makes queries has two of them.
    kinds: list[str] = []
    original: Any = type(self)
    while hasattr(original, "swapped_kind"):
        kinds.insert(0, original.swapped_kind)
        original = original.original
    return _blank, (kinds[0] if len(kinds) == 1 else kinds, original), self.__dict__


def _blank(kinds: str | list[str], original: type) -> Any:
    made = original
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        made = swapped_class(kind, made)
    return made.__new__(made)  # type: ignore[call-overload]


def _forward_of_norm(
    original: type, applied: Callable[[Tensor], Tensor] = lambda x: x
) -> Callable[..., Any]:
    @functools.wraps(original.forward)  # type: ignore[attr-defined]
    def forward(self: nn.Module, x: Tensor, *others: Any, **named: Any) -> Tensor:
        if others or named:
            raise TransplantRefused(
                f"a {original.__name__} takes more than what it norms, such as a fused sum and norm"
            )
        return applied(x)

    return forward


def _forward_of_projection(original: type) -> Callable[..., Any]:
    @functools.wraps(original.forward)  # type: ignore[attr-defined]
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        made = original.forward(self, *args, **kwargs)  # type: ignore[attr-defined]
        return self.placed.normed(made)  # type: ignore[operator, union-attr]

    return forward


def _forward_of_attention(original: type) -> Callable[..., Any]:
    @functools.wraps(original.forward)  # type: ignore[attr-defined]
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        mode = Meeting(self.placed_scores.normed, original.__name__)  # type: ignore[union-attr, arg-type]
        with mode:
            output = original.forward(self, *args, **kwargs)  # type: ignore[attr-defined]
        mode.check()
        return output

    return forward


def _forward_of_block(original: type) -> Callable[..., Any]:
    @functools.wraps(original.forward)  # type: ignore[attr-defined]
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        wiring: Wiring = self.wiring  # type: ignore[assignment]
        added: Added = self.placed  # type: ignore[assignment]
        count = len(wiring.program.inputs)
        entered = wiring.seat.find(args, kwargs)
        if getattr(entered, "holds_streams", count) != count:
            raise TransplantRefused(
                f"{wiring.name}: a block before it did not run, so that its streams are not all "
                "there"
            )
        streams = _unpacked(entered, count)
        run = Run(wiring.program, streams, wiring.norms(added), added.number)
        mode = Following(run, streams[0], wiring.name, passes_norms=wiring.passes_norms)
        args, kwargs = wiring.seat.put(args, kwargs, streams[0])
        with mode, nullcontext() if _WATCHED is None else _running(mode):
            output = original.forward(self, *args, **kwargs)  # type: ignore[attr-defined]
        if not run.joins and mode.given_back(output, entered)[1]:
            mode.refuse(
                "it returned without any residual sum, as blocks do that are left out at random"
            )
        if run.joins != len(run.program.reads):
            raise TransplantRefused(
                f"{wiring.name}: {run.joins} sums with the residual stream were seen and it has "
                f"{len(run.program.reads)} sub-layers; a sum within a fused kernel cannot be seen"
            )
        mode.check_unwritten()
        left = run.outputs()
        output, found = mode.given_back(output, _packed(left))
        if not found:
            raise TransplantRefused(
                f"{wiring.name}: what it returns is not the sum that was followed through it"
            )
        return output

    return forward


def _call_of_reader(original: type) -> Callable[..., Any]:
    """Returns the `__call__` of a module that reads the stream itself: its hooks, and all within
    it, are given what the formula has it read.
    """

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for seat in self.stream_seats:  # type: ignore[union-attr]
            args, kwargs = seat.changed(args, kwargs, PASSED_OVER)
        return original.__call__(self, *args, **kwargs)

    return call


_WATCHED: list[Following] | None = None
"""While `watched` lasts: the blocks that run, the innermost last."""


@contextmanager
def watched() -> Iterator[list[Following]]:
    """Blocks that run, each as what follows the stream through it."""
    global _WATCHED
    _WATCHED = []
    try:
        yield _WATCHED
    finally:
        _WATCHED = None


@contextmanager
def _running(mode: Following) -> Iterator[None]:
    assert _WATCHED is not None
    _WATCHED.append(mode)
    try:
        yield
    finally:
        _WATCHED.pop()


_HANDED: list[tuple[Tensor, Sequence[Tensor]]] | None = None
"""While `handed_on` lasts: what left blocks, packed and as it was."""


def _packed(streams: Sequence[Tensor]) -> Tensor:
    """Returns several streams as one tensor, which whatever stands between blocks hands on: one
    batch after the other.
    """
    if len(streams) == 1:
        return streams[0]
    packed = torch.cat(list(streams))
    if not torch.compiler.is_compiling():
        packed.holds_streams = len(streams)  # type: ignore[attr-defined]
    if _HANDED is not None:
        _HANDED.append((packed, streams))
    return packed


def _unpacked(entered: Tensor, count: int) -> Sequence[Tensor]:
    if count > 1 and _HANDED is not None:
        for packed, streams in _HANDED:
            if len(streams) == count and (packed is entered or torch.equal(packed, entered)):
                return streams
    return entered.chunk(count) if count > 1 else (entered,)


@contextmanager
def handed_on() -> Iterator[None]:
    """Streams come from block to block as they were, wherever the tensor that they are packed in
    arrives unchanged.

    For whoever reads the operations of a pass, to whom packing would hide that they are the same
    streams.
    """
    global _HANDED
    _HANDED = []
    try:
        yield
    finally:
        _HANDED = None


_FORWARDS: dict[str, Callable[[type], Callable[..., Any]]] = {
    "block": _forward_of_block,
    "norm": _forward_of_norm,
    "inner norm": functools.partial(_forward_of_norm, applied=PASSED_OVER),
    PROJECTION: _forward_of_projection,
    ATTENTION: _forward_of_attention,
}
