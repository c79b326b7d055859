"""The residual stream of any model: hooks that reduce a tensor to a few numbers while the forward pass goes on."""

import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

_Key = TypeVar("_Key", bound=Hashable)
_Reduced = TypeVar("_Reduced")


def first_tensor(value: Any) -> Tensor:
    """The tensor itself, or the first one of a tuple, list or mapping: what most libraries' blocks put first.

    Raises TypeError where there is none.
    """
    inner = value
    while not isinstance(inner, Tensor):
        children = iter(inner.values() if isinstance(inner, Mapping) else inner if isinstance(inner, Sequence) else ())
        child = next(children, None)
        if child is None or isinstance(inner, str):
            raise TypeError(f"no tensor comes first in this {type(value).__name__}; give a `pick` that takes it out")
        inner = child
    return inner


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a model where a tensor is looked at."""

    module: nn.Module
    at: Literal["input", "output"] = "output"
    """input: the first argument of its `forward`, given by position or by keyword."""
    pick: Callable[[Any], Tensor] = first_tensor
    """Takes the tensor out of what stands there."""


def depth_points(blocks: Iterable[nn.Module], *, pick: Callable[[Any], Tensor] = first_tensor) -> dict[str, Point]:
    """x_0, the first block's input, and x_1 … x_L, the blocks' outputs. Raises ValueError without any block."""
    blocks = list(blocks)
    if not blocks:
        raise ValueError("a stream needs at least one block")
    outputs = {f"x_{depth}": Point(block, "output", pick) for depth, block in enumerate(blocks, 1)}
    return {"x_0": Point(blocks[0], "input", pick), **outputs}


@contextmanager
def recording(
    places: Mapping[_Key, Point], reduce: Callable[[Tensor], _Reduced]
) -> Iterator[dict[_Key, list[_Reduced]]]:
    """While it lasts, every call of a point's module appends `reduce(tensor)` under the point's name.

    The tensor is detached, and nothing of it is kept unless `reduce` returns it. Hooks are removed at the end, after an
    error too. A block under activation checkpointing runs, and is recorded, a second time in the backward pass: leave
    the context before it.
    """
    found: dict[_Key, list[_Reduced]] = {name: [] for name in places}

    def look(name: _Key, point: Point, value: Any) -> None:
        with torch.no_grad():
            found[name].append(reduce(point.pick(value).detach()))

    def hook(name: _Key, point: Point) -> torch.utils.hooks.RemovableHandle:
        if point.at == "output":
            return point.module.register_forward_hook(lambda _, __, output: look(name, point, output))
        return point.module.register_forward_pre_hook(
            lambda module, args, kwargs: look(name, point, _first_argument(module, args, kwargs)),
            with_kwargs=True,
        )

    handles = []
    try:
        for name, point in places.items():
            handles.append(hook(name, point))
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _first_argument(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args:
        return args[0]
    # A caller may name arguments in any order.
    named = [name for name in inspect.signature(module.forward).parameters if name in kwargs] or list(kwargs)
    return kwargs[named[0]] if named else None
