"""What is recorded from any `nn.Module`."""

from .amplification import Amplification, UpdateEffect, amplification
from .features import Bound, BoundCounter, is_bounded, smallest_delta, squared_norms
from .gradients import GradientNorms, expected_gradient_norms, gradient_norms
from .jacobian import (
    jacobian_norm,
    jacobian_singular_values,
    layer_norm_jacobian_norm,
    norm_jacobian_norm,
    rms_norm_jacobian_norm,
)
from .line import weights_after
from .statistics import Estimate, Sensitivity, Summary, counted_losses, lr_sensitivity, t_beyond, t_quantile
from .stream import (
    Point,
    Share,
    StreamMoments,
    depth_points,
    first_tensor,
    measure_stream,
    points,
    recording,
    stream_moments,
    sublayer_shares,
)

__all__ = [
    "Amplification",
    "Bound",
    "BoundCounter",
    "Estimate",
    "GradientNorms",
    "Point",
    "Sensitivity",
    "Share",
    "StreamMoments",
    "Summary",
    "UpdateEffect",
    "amplification",
    "counted_losses",
    "depth_points",
    "expected_gradient_norms",
    "first_tensor",
    "gradient_norms",
    "is_bounded",
    "jacobian_norm",
    "jacobian_singular_values",
    "layer_norm_jacobian_norm",
    "lr_sensitivity",
    "measure_stream",
    "norm_jacobian_norm",
    "points",
    "recording",
    "rms_norm_jacobian_norm",
    "smallest_delta",
    "squared_norms",
    "stream_moments",
    "sublayer_shares",
    "t_beyond",
    "t_quantile",
    "weights_after",
]
