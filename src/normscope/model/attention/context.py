"""What sub-layers share in a forward pass, and what a sub-layer is."""

# M = packed tokens of keys, D = width
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .cache import Cache
from .layout import Grid, Layout

Inside = dict[str, Callable[[Tensor], Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a stack's sub-layers share in one forward pass."""

    layout: Layout | Grid
    causal: bool = False
    memory_MD: Tensor | None = None
    memory_layout: Layout | Grid | None = None
    cache: Cache | None = None


class SublayerModule(nn.Module):
    """F of the papers as a module: x, what the stack's sub-layers share, and functions to apply within."""

    def matrices(self) -> Iterator[tuple[str, Any]]:
        """Its weight matrices, each with a `weight` and a `bias`, by the names that initialisation uses."""
        raise NotImplementedError


def as_factor(x: Tensor) -> Tensor:
    """x in the dtype that autocast gives to products: cast once, where each of several products would cast it again."""
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(device))
