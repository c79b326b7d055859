"""Dropout whose masks are drawn four to a random number: torch's own draws one element at a time on a CPU.

A model can be put in training or evaluation mode for a while.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zero each element with probability `rate` and scale the rest by 1 / (1 - rate); identity in evaluation.

    On a CPU the rate is rounded to a multiple of 2^-16, and the scale is exact for the rounded rate: the mean is kept.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate lies in [0, 1), got {rate}")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return functional.dropout(x, self.rate)
        return _masked_scale(x, round(self.rate * _LEVELS))

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class _MaskedScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped_levels: int) -> Tensor:
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        levels = words.view(torch.int16)[: x.numel()].view(x.shape)
        keep = levels >= dropped_levels - _LEVELS // 2
        # Not as an attribute: activation checkpointing drops what is saved, and only that.
        ctx.save_for_backward(keep)
        ctx.scale = _LEVELS / (_LEVELS - dropped_levels)
        return _scale(x, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _scale(gradient, keep, ctx.scale), None


def _scale(x: Tensor, keep: Tensor, scale: float) -> Tensor:
    # torch converts bool to a float dtype element by element, and int8 by vectors, several times as fast.
    return keep.view(torch.int8).to(x.dtype).mul_(x).mul_(scale)


_masked_scale: Callable[..., Tensor] = _MaskedScale.apply


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Every module in one mode; at the end, after an error too, each is in the mode that it was in."""
    modes = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, before in modes.items():
            module.training = before
