"""Weights that are infinite or NaN, and a model looked at with 0 in the place of such entries."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from ..trace.forward import floating, is_finite


@dataclass(frozen=True, slots=True, kw_only=True)
class NonfiniteWeight:
    """A parameter with entries that are infinite or NaN."""

    name: str
    entries: int
    """How many there are of them."""
    of: int
    only_minus_infinity: bool
    """As in a mask that is added to scores, or in the bias of a class that is never wanted."""


def nonfinite_weights(model: nn.Module) -> tuple[NonfiniteWeight, ...]:
    """In the model's order; buffers are not looked at, for masks of -inf are kept in them."""
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
