"""The settings that tell patterns apart, as the callbacks write them once beside their first measurement."""

from math import inf, isfinite

from torch.optim import Optimizer

from ..doctor.lint.clipping import epsilon_of
from .readers.rows import RECIPE


def recipe_values(optimizer: Optimizer, clip_norm: float | None) -> dict[str, float]:
    """`normscope/recipe/…`: whether the optimiser divides by the gradient's size, its ε, and the clip, 0 for none."""
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    epsilon = epsilon_of(group)
    clip = clip_norm if clip_norm and isfinite(clip_norm) else 0.0
    found = {f"{RECIPE}divides": float(epsilon is not None), f"{RECIPE}clip_norm": float(clip)}
    return found if epsilon in (None, inf) else found | {f"{RECIPE}epsilon": float(epsilon or 0.0)}
