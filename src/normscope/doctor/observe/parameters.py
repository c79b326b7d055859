"""What parameters tell by themselves: those that are infinite or NaN, and gates where their curve is flat."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..record import FlatGate
from ..trace.forward import floating, is_finite
from ..trace.operations import Origin, Trace, memory_of, names_by_memory


def size_of(tensor: Tensor) -> float:
    """Root mean square of its entries, in float64; NaN of none, and on the meta device."""
    if tensor.is_meta or not tensor.numel() or tensor.is_sparse:
        return math.nan
    return float(torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64)) / math.sqrt(tensor.numel())


FLAT = 0.01
"""Of the greatest slope: σ beyond 6.0 and tanh beyond 3.0."""


def flat_gates(model: nn.Module, trace: Trace) -> tuple[FlatGate, ...]:
    """The parameters whose σ or tanh is flat for half of the entries or more, in the order in which they are read.

    What depends on the model's input is no gate of this kind: there the slope is another for every token.
    """
    names = names_by_memory(model.named_parameters())
    found: dict[str, float] = {}
    for value in trace.values:
        if value.op in _SLOPES and value.origin == Origin.TRAINABLE and not value.tensor.is_meta:
            slope = _SLOPES[value.op](value.tensor.double())
            share = float((slope < FLAT).double().mean()) if slope.numel() else 0.0
            for leaf in trace.leaves(value.number):
                name = names.get(memory_of(leaf.tensor))
                if name is not None and share >= 0.5:
                    found[name] = max(share, found.get(name, 0.0))
    return tuple(FlatGate(name=name, share=share) for name, share in found.items())


def _of_sigmoid(y: Tensor) -> Tensor:
    return 4 * y * (1 - y)


def _of_tanh(y: Tensor) -> Tensor:
    return 1 - y * y


_SLOPES = {"sigmoid": _of_sigmoid, "tanh": _of_tanh}
"""Of a curve's value its slope, over the greatest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NonfiniteWeight:
    """A parameter or a buffer with entries that are infinite or NaN."""

    name: str
    entries: int
    """How many there are of them."""
    of: int
    only_minus_infinity: bool
    """As in a mask that is added to scores, or in the bias of a class that is never wanted."""


def nonfinite_weights(model: nn.Module) -> tuple[NonfiniteWeight, ...]:
    """In the model's order, parameters before buffers; a buffer counts where it holds NaN, for masks hold -inf."""
    return tuple(
        NonfiniteWeight(
            name=name,
            entries=int((~torch.isfinite(weight)).sum()),
            of=weight.numel(),
            only_minus_infinity=not bool(torch.isnan(weight).any() or torch.isposinf(weight).any()),
        )
        for name, weight in floating(model)
        if not is_finite(weight)
    )


@contextmanager
def read_as_zero(model: nn.Module, nonfinite: Sequence[NonfiniteWeight]) -> Iterator[None]:
    """With 0 in the place of what is not finite; at the end, after an error too, every bit is as it was."""
    names = {one.name for one in nonfinite}
    kept = [(weight, weight.clone()) for name, weight in floating(model) if name in names]
    try:
        for weight, _ in kept:
            weight.nan_to_num_(0.0, 0.0, 0.0)
        yield
    finally:
        for weight, value in kept:
            weight.copy_(value)
