"""What several losses are computed with."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LN2 = math.log(2)
"""Nats in a bit."""


def at_least_float32(logits: Tensor) -> Tensor:
    """A softmax is not for bfloat16; float64 stays."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def unigram_entropy_nats(tokens: NDArray[np.integer[Any]]) -> float:
    """Entropy of tokens taken one by one: the loss of a model that knows how often each occurs and nothing else."""
    counts = np.bincount(tokens)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
