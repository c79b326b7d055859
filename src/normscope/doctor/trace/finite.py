"""Whether weights are finite, in one pass over each."""

import math
from collections.abc import Iterator

import torch
from torch import nn


def floating(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters of a usual precision, by name; buffers are left out, for masks of -inf are kept in them."""
    for name, parameter in model.named_parameters():
        usual = parameter.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        if usual and not parameter.is_meta and parameter.layout == torch.strided and parameter.numel():
            yield name, parameter.data  # not `detach()`, whose version autograd would see change


def is_finite(weight: torch.Tensor) -> bool:
    """Whether no entry is infinite or NaN."""
    # One pass without a copy, where isfinite takes three.
    return all(math.isfinite(bound) for bound in torch.aminmax(weight))
