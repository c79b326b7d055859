"""The recordings that are made of any `nn.Module`."""

from .passes import Point, depth_points, first_tensor, gradient_norms, recording, weights_after
from .statistics import (
    Estimate,
    Sensitivity,
    Summary,
    counted_losses,
    lr_sensitivity,
    t_beyond,
    t_quantile,
)

__all__ = [
    "Estimate",
    "Point",
    "Sensitivity",
    "Summary",
    "counted_losses",
    "depth_points",
    "first_tensor",
    "gradient_norms",
    "lr_sensitivity",
    "recording",
    "t_beyond",
    "t_quantile",
    "weights_after",
]
