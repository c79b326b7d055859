"""The recordings of a model: values at points of a pass, sizes of tensors, and weights that are
moved or updated.
"""

import inspect
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from .unchanged import restored

_Key = TypeVar("_Key", bound=Hashable)
_Reduced = TypeVar("_Reduced")


def first_tensor(value: Any) -> Tensor:
    """Returns the tensor itself, or the first one of a tuple, list or mapping: what most libraries'
    blocks put first.

    Raises TypeError where there is none.
    """
    inner = value
    while not isinstance(inner, Tensor):
        children = iter(
            inner.values()
            if isinstance(inner, Mapping)
            else inner
            if isinstance(inner, Sequence)
            else ()
        )
        child = next(children, None)
        if child is None or isinstance(inner, str):
            raise TypeError(
                f"no tensor comes first in this {type(value).__name__}; give a `pick` that takes "
                "it out"
            )
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


def depth_points(
    blocks: Iterable[nn.Module], *, pick: Callable[[Any], Tensor] = first_tensor
) -> dict[str, Point]:
    """x_0, the first block's input, and x_1 … x_L, the blocks' outputs. Raises ValueError without
    any block.
    """
    blocks = list(blocks)
    if not blocks:
        raise ValueError("a stream needs at least one block")
    outputs = {f"x_{depth}": Point(block, "output", pick) for depth, block in enumerate(blocks, 1)}
    return {"x_0": Point(blocks[0], "input", pick), **outputs}


@contextmanager
def recording(
    places: Mapping[_Key, Point], reduce: Callable[[Tensor], _Reduced]
) -> Iterator[dict[_Key, list[_Reduced]]]:
    """While it lasts, every call of a point's module appends `reduce(tensor)` under the point's
    name.

    The tensor is detached, and nothing of it is kept unless `reduce` returns it. Hooks are removed
    at the end, after an error too. A block under activation checkpointing runs, and is recorded, a
    second time in the backward pass: leave the context before it.
    """
    found: dict[_Key, list[_Reduced]] = {name: [] for name in places}

    def look(name: _Key, point: Point, value: Any) -> None:
        with torch.no_grad():
            found[name].append(reduce(point.pick(value).detach()))

    def hook(name: _Key, point: Point) -> torch.utils.hooks.RemovableHandle:
        if point.at == "output":
            return point.module.register_forward_hook(
                lambda _, __, output: look(name, point, output)
            )
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
    named = [
        name for name in inspect.signature(module.forward).parameters if name in kwargs
    ] or list(kwargs)
    return kwargs[named[0]] if named else None


def gradient_norms(model: nn.Module) -> dict[str, float]:
    """Returns the Frobenius norm of each parameter's present gradient, by parameter name;
    parameters without one are left out.
    """
    named = [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None]
    norms = torch._foreach_norm([gradient for _, gradient in named]) if named else []
    # One transfer for all of them.
    values = torch.stack([n.float() for n in norms]).tolist() if named else []
    return {name: value for (name, _), value in zip(named, values, strict=True)}


_ELEMENTS_AT_ONCE = 1 << 16
"""The number of elements that stay in a processor's cache while several passes are made over
them.
"""


@contextmanager
def moved(
    weights: Mapping[str, nn.Parameter], direction: Mapping[str, Tensor], distance: float
) -> Iterator[None]:
    """Weights so many times a direction away, while the context lasts; they come back bit by
    bit.
    """
    start = {name: weights[name].detach().clone() for name in direction}
    try:
        with torch.no_grad():
            for name, step in direction.items():
                weights[name].add_(step, alpha=distance)
        yield
    finally:
        with torch.no_grad():
            for name, before in start.items():
                weights[name].copy_(before)


_REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def has_arithmetic(x: Tensor) -> bool:
    """Tells whether all of torch's operations take a tensor: real numbers of 16 bits and more."""
    return x.dtype in _REAL


@torch.no_grad()
def euclidean_norm(x: Tensor) -> float:
    """‖x‖ of all entries, of whichever dtype, summed in float64 where the device has it; 0 of
    none.
    """
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    if x.is_complex():
        x = torch.view_as_real(x.resolve_conj())
    elif not has_arithmetic(x):
        x = x.to(wide)
    if x.device.type != "cpu" or x.numel() <= _ELEMENTS_AT_ONCE:
        return float(torch.linalg.vector_norm(x, dtype=wide))
    # In the order of memory and a few entries at a time, as a copy of all would have to go there
    # and come back.
    in_order = x.permute(sorted(range(x.ndim), key=x.stride, reverse=True)).reshape(-1)
    pieces = (some.double() for some in torch.split(in_order, _ELEMENTS_AT_ONCE))
    return math.sqrt(sum(float(wide.dot(wide)) for wide in pieces))


def mean_square(x: Tensor) -> float:
    """Returns the mean of all squares: of (..., D) E‖x‖²/d over the tokens; NaN of none."""
    return euclidean_norm(x) ** 2 / x.numel() if x.numel() else math.nan


def weights_after(
    model: nn.Module,
    make: Callable[[nn.Module], torch.optim.Optimizer],
    loss: Callable[[int], Tensor],
    updates: Sequence[int],
) -> dict[int, dict[str, Tensor]]:
    """Copies of all trainable weights after each of these updates, by parameter name, in evaluation
    mode.

    make: a fresh optimiser over the model's parameters, with its rate; any of torch's kind. loss:
    runs the model on the batch of an update, counted from 1, and gives one number. Dropout is off,
    so that the same weights and batches give the same updates. Weights, buffers, `.grad`, modes and
    random generators are at the end what they were; what `make` or `loss` draws is drawn anew.
    Takes max(updates) forward and backward passes.

    Raises ValueError for a loss that is not one finite number.
    """
    found = {}
    with restored(model), torch.enable_grad():
        optimizer = make(model)
        for update in range(1, max(updates) + 1):
            # The gradients that are there are the caller's.
            for weight in model.parameters():
                weight.grad = None
            value = loss(update)
            if value.numel() != 1 or not bool(value.isfinite().all()):
                what = (
                    float(value.detach())
                    if value.numel() == 1
                    else f"a tensor of shape {tuple(value.shape)}"
                )
                raise ValueError(
                    f"the loss of update {update} must be one finite number, got {what}"
                )
            value.reshape(()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if update in updates:
                found[update] = {
                    name: weight.detach().clone()
                    for name, weight in model.named_parameters()
                    if weight.requires_grad
                }
    return found
