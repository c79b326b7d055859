"""Gradient norms of a module's parameters."""

import torch
from torch import nn


def gradient_norms(model: nn.Module) -> dict[str, float]:
    """Frobenius norm of each parameter's present gradient, by parameter name; parameters without one are left out."""
    named = [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None]
    norms = torch._foreach_norm([gradient for _, gradient in named]) if named else []
    # One transfer for all of them.
    values = torch.stack([n.float() for n in norms]).tolist() if named else []
    return {name: value for (name, _), value in zip(named, values, strict=True)}
