"""What several losses are computed with."""

import math

import numpy as np
import torch
from torch import Tensor

from ..data.shards import Numbers

LN2 = math.log(2)
"""Nats in a bit."""


def at_least_float32(logits: Tensor) -> Tensor:
    """A softmax is not for bfloat16; float64 stays."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def unigram_entropy_nats(tokens: Numbers) -> float:
    """Entropy of tokens taken one by one: the loss of a model that knows how often each occurs and nothing else."""
    counts = np.bincount(np.asarray(tokens))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
