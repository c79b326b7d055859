"""A model with all that is needed to look at it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ..doctor.advise.batches import Given
from ..doctor.lint.rules import Loading
from ..doctor.trace.forward import Inputs

Loss = Callable[..., Tensor]
"""The output of forward, and where it has a second argument the batch -> the mean loss per token in nats, a scalar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the user named, opened."""

    title: str
    """What to call it in a report."""
    model: nn.Module
    inputs: Inputs
    loss: Loss | None = None
    """None where no loss can be taken: a model that gives hidden states, or a factory that named none."""
    batches: Given | None = None
    """To train on shortly; None where it brings none."""
    optimizer: torch.optim.Optimizer | None = None
    """Its own one, at its peak rate; None where it brings none."""
    warmup_updates: int | None = None
    """Of its training, up to the peak rate; None where that is not known."""
    loading: Loading | None = None
    """None for a model with initial weights."""
    wanted_placement: str | None = None
    """A registered name, where the model's configuration says what its placement is meant to be."""
    clip_norm: float | None = None
    """What its training clips the gradient's norm to; inf for no clipping, None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How sample inputs are drawn for a target that brings none."""

    tokens: int
    """Of a sequence, where positions allow."""
    sequences: int
    seed: int

    def __post_init__(self) -> None:
        if self.tokens < 2 or self.sequences < 1:
            raise ValueError(
                f"--tokens must be at least 2 and --sequences at least 1, got {self.tokens} and {self.sequences}"
            )
        if self.seed < 0:
            raise ValueError(f"--seed must be 0 or more, got {self.seed}")

    def seed_everything(self) -> None:
        """torch, numpy and `random`, which a factory may draw its weights with."""
        torch.manual_seed(self.seed)
        np.random.seed(self.seed % 2**32)
        random.seed(self.seed)

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)
