"""Norms of the kind that was asked for, of a width: the model's own class where it has it."""

import copy
import math

import torch
from torch import nn

from ...doctor.record import Stack
from ...model.placed import NORMS
from ...placement import QueryKeyNorm
from ..placed import swap_back
from ..weights import marked, reset

_EPSILON = 1e-6
"""The epsilon of norms in a model that shows none of its own; Llama, Qwen 3 and OLMo 2 have it."""


def sharpness(scale: float | None, head_width: int) -> float:
    return 1 / (abs(scale) * math.sqrt(head_width)) if scale else 1.0


def made_norm(
    model: nn.Module, stack: Stack, norm: QueryKeyNorm, width: int, factor: float
) -> nn.Module:
    """Returns a norm of the kind that was asked for, the model's own class where it has it;
    `factor` is what it multiplies at first.
    """
    own = _own_norm(model, stack)
    kind = {"rms": "rms-norm", "layer": "layer-norm", "unit": "scale-norm"}.get(norm.kind)
    if own is not None and kind in (None, stack.norm):
        made = _resized(own, stack.width, width)
        if made is not None:
            return _multiplying(marked(made), width, factor)
    epsilon = stack.norm_epsilon or _EPSILON
    usual = stack.norm if stack.norm in ("layer-norm", "rms-norm") else "rms-norm"
    return _multiplying(marked(NORMS[kind or usual](width, epsilon)), width, factor, fresh=True)


def _own_norm(model: nn.Module, stack: Stack) -> nn.Module | None:
    """Returns a norm of the stack that is a module and nothing else."""
    for use in stack.norm_uses:
        module = model.get_submodule(use.module) if use.parameters else None
        if module is not None and not any(module.children()):
            own = {f"{use.module}.{name}" for name, _ in module.named_parameters()}
            if own <= set(use.parameters):
                return module
    return None


def _resized(own: nn.Module, before: int, width: int) -> nn.Module | None:
    """Returns a new norm of a module's class for another width; None where that does not work."""
    made = copy.deepcopy(own)
    if hasattr(type(made), "swapped_kind"):
        swap_back(made)
    for name, parameter in made.named_parameters():
        if parameter.shape != (before,):
            return None
        setattr(made, name, nn.Parameter(parameter.new_zeros(width)))
    for name, value in vars(made).items():
        if value == before and isinstance(value, int):
            setattr(made, name, width)
        elif value == (before,):
            setattr(made, name, (width,))
    reset(made, width)
    try:
        x = torch.randn(2, width, generator=torch.Generator().manual_seed(0))
        like = next(made.parameters(), x)
        with torch.no_grad():
            size = float(made(x.to(like)).double().square().mean())
    except (RuntimeError, ValueError, TypeError):
        return None
    return made if abs(size - 1) < 0.01 else None


@torch.no_grad()
def _multiplying(norm: nn.Module, width: int, factor: float, *, fresh: bool = False) -> nn.Module:
    """Returns the norm with gains by which what it gives has the size `factor`."""
    if not fresh:
        reset(norm, width)
    if abs(factor - 1) > 1e-3:
        for name, parameter in norm.named_parameters():
            if "bias" in name:
                continue
            if bool(parameter.any()):
                parameter.mul_(factor)
            else:  # gains that a norm adds to 1
                parameter.fill_(factor - 1.0)
    return norm
