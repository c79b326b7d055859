"""Models whose training step is measured: a family a file, NormScope's first and its peers' behind
it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class System:
    """A model, and how a batch becomes the mean loss that is minimised."""

    module: nn.Module
    loss: Callable[[nn.Module, Any], Tensor]
    """Of the module, or what torch.compile has made of it, and a batch on its device."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A size of model, its batches, and the systems that have it."""

    make: dict[str, Callable[[], System]]
    """By name; the first is NormScope's, and the second is what it is measured against."""
    batches: Callable[[int], list[Any]]
    """On the CPU, so many target tokens each, of which two make a pass."""
    tokens_of: Callable[[Any], int]
    tokens: tuple[int, ...]
    """Of a batch; the first size is measured of every system, others of the first two alone."""
    decay: bool
    """Whether the optimiser is AdamW, as usual for the family, or Adam."""
