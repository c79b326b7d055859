"""Weights that are infinite or NaN, and a model looked at with 0 in the place of such entries."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn


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
        for name, weight in _floating(model)
        if not _is_finite(weight)
    )


def _floating(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, parameter in model.named_parameters():
        usual = parameter.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        if usual and not parameter.is_meta and parameter.layout == torch.strided and parameter.numel():
            yield name, parameter.data  # not `detach()`, whose version autograd would see change


def _is_finite(weight: torch.Tensor) -> bool:
    # One pass without a copy, where isfinite takes three.
    return all(math.isfinite(bound) for bound in torch.aminmax(weight))


@contextmanager
def read_as_zero(model: nn.Module, nonfinite: Sequence[NonfiniteWeight]) -> Iterator[None]:
    """With 0 in the place of what is not finite; at the end, after an error too, every bit is as it was."""
    names = {one.name for one in nonfinite}
    kept = [(weight, weight.clone()) for name, weight in _floating(model) if name in names]
    try:
        for weight, _ in kept:
            weight.nan_to_num_(0.0, 0.0, 0.0)
        yield
    finally:
        for weight, value in kept:
            weight.copy_(value)
