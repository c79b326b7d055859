"""What is recorded from any `nn.Module`."""

from .amplification import Amplification, UpdateEffect, amplification
from .gradients import GradientNorms, expected_gradient_norms, gradient_norms
from .line import weights_after
from .statistics import Estimate, Sensitivity, Summary, counted_losses, lr_sensitivity, t_beyond, t_quantile
from .stream import (
    Point,
    depth_points,
    first_tensor,
    recording,
)

__all__ = [
    "Amplification",
    "Estimate",
    "GradientNorms",
    "Point",
    "Sensitivity",
    "Summary",
    "UpdateEffect",
    "amplification",
    "counted_losses",
    "depth_points",
    "expected_gradient_norms",
    "first_tensor",
    "gradient_norms",
    "lr_sensitivity",
    "recording",
    "t_beyond",
    "t_quantile",
    "weights_after",
]
