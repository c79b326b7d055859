"""Weights of usual sizes for a copy that has not learned with its own.

A model whose matrices begin as small as N(0, 0.02²) at a narrow width learns to copy late, whatever
its wiring. So a copy is tried with matrices drawn anew before its wiring is blamed.
"""

import math

import torch
from torch import nn

_OF_TABLES = 0.1
"""Deviation of an embedding's entries, as of the references' tables."""


@torch.no_grad()
def redraw(model: nn.Module, *, seed: int) -> None:
    """Draws every matrix that is trained anew, by Glorot and Bengio (2010), and embeddings from
    N(0, 0.1²); vectors, such as gains and biases, stay.
    """
    generator = torch.Generator().manual_seed(seed)
    tables = {id(one.weight) for one in model.modules() if isinstance(one, nn.Embedding)}
    for weight in model.parameters():
        if not weight.requires_grad or weight.dim() < 2:
            continue
        rows, columns = weight.shape[0], weight[0].numel()
        deviation = _OF_TABLES if id(weight) in tables else math.sqrt(2 / (rows + columns))
        # Drawn where the generator lives, so that a device draws as the processor does.
        drawn = deviation * torch.randn(weight.shape, generator=generator)
        weight.copy_(drawn)
