"""What several losses are computed with."""

import math

import torch
from torch import Tensor

LN2 = math.log(2)
"""Nats in a bit."""


def at_least_float32(logits: Tensor) -> Tensor:
    """A softmax is not for bfloat16; float64 stays."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
