"""What is recorded of a model in a pass: values at points of the stream, and norms of gradients."""

import inspect
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from .line import euclidean_norm

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


_Batch = TypeVar("_Batch")


def gradient_norms(model: nn.Module) -> dict[str, float]:
    """Frobenius norm of each parameter's present gradient, by parameter name; parameters without one are left out."""
    named = [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None]
    norms = torch._foreach_norm([gradient for _, gradient in named]) if named else []
    # One transfer for all of them.
    values = torch.stack([n.float() for n in norms]).tolist() if named else []
    return {name: value for (name, _), value in zip(named, values, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNorms:
    """Frobenius norms of one parameter's gradient g over batches, each batch counting the same.

    Two different questions: how large is a batch's gradient (`mean_of_norms`), and how large is the gradient that
    batches have in common (`norm_of_mean`, which is what Xiong et al. 2020, figure 3(a) and (b), shows).
    """

    batches: int
    mean_of_norms: float
    """Mean of ‖g‖: an unbiased estimate of E‖g‖."""
    mean_of_squares: float
    """Mean of ‖g‖²."""
    norm_of_mean: float
    """‖ḡ‖, ḡ the mean over the batches. Its square is biased upwards: E‖ḡ‖² = ‖Eg‖² + (trace of Cov g) / batches."""

    @property
    def expected_squared(self) -> float:
        """Unbiased estimate of ‖Eg‖²: ‖ḡ‖² less `noise` / batches. NaN for one batch.

        It may come out negative, where the batches have nothing in common that could be told from noise; its root
        would be biased again and is left to the reader.
        """
        return self.norm_of_mean**2 - self.noise / self.batches

    @property
    def noise(self) -> float:
        """Unbiased estimate of the trace of Cov g, E‖g - Eg‖². NaN for one batch."""
        if self.batches == 1:
            return math.nan
        return (self.mean_of_squares - self.norm_of_mean**2) * self.batches / (self.batches - 1)


class _Running:
    """The mean of one parameter's gradients so far, and of their norms."""

    def __init__(self, parameter: Tensor) -> None:
        # bfloat16 would swallow what the hundredth batch adds to a mean.
        dtype = torch.promote_types(parameter.dtype, torch.float32)
        self.mean = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
        self.norms, self.squares, self.used = 0.0, 0.0, False

    def add(self, gradient: Tensor | None, batch: int) -> None:
        """The gradient of the `batch`-th batch, from 1; None counts as 0."""
        if gradient is None:
            self.mean.mul_((batch - 1) / batch)
            return
        self.used = True
        gradient = (gradient.to_dense() if gradient.layout != torch.strided else gradient).to(self.mean.dtype)
        norm = euclidean_norm(gradient)
        self.norms, self.squares = self.norms + norm, self.squares + norm**2
        self.mean.lerp_(gradient, 1 / batch)


def expected_gradient_norms(
    model: nn.Module, batches: Iterable[_Batch], loss: Callable[[_Batch], Tensor]
) -> dict[str, GradientNorms]:
    """Gradient norms of `loss(batch)`, a scalar, over all batches, by parameter name.

    Streamed: beside one batch's gradients it holds one running mean of them (float32 at least), however many batches
    there are. `.grad` is neither read nor written, and no random number is drawn but by `loss`. A batch that does not
    use a parameter counts as a gradient of 0; parameters that are frozen, or used by no batch, are left out.
    Raises ValueError without batches, without a trainable parameter, or where the loss is not one number.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not named:
        raise ValueError("no parameter of the model is trainable")
    running = {name: _Running(p) for name, p in named.items()}
    count = 0
    for count, batch in enumerate(batches, 1):
        with torch.enable_grad():
            value = loss(batch)
            single = value.reshape(()) if value.numel() == 1 else None
        if single is None:
            raise ValueError(f"the loss of a batch must be one number, got a tensor of shape {tuple(value.shape)}")
        gradients = torch.autograd.grad(single, list(named.values()), allow_unused=True)
        for one, gradient in zip(running.values(), gradients, strict=True):
            one.add(gradient, count)
        # The next batch's graph must not stand beside this one's gradients.
        del value, single, gradients, gradient
    if not count:
        raise ValueError("no batches were given")
    return {
        name: GradientNorms(
            batches=count,
            mean_of_norms=one.norms / count,
            mean_of_squares=one.squares / count,
            norm_of_mean=euclidean_norm(one.mean),
        )
        for name, one in running.items()
        if one.used
    }
