"""Optimisers by name: torch's own, and Lion as `lion-pytorch` has it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from ..errors import UserError

OptimizerName = Literal["adam", "adamw", "sgd", "radam", "lion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """Adam by default, as in the paper: betas (0.9, 0.98), no weight decay."""

    name: OptimizerName = "adam"
    peak_lr: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.98)
    """adam, adamw, radam: decay rates of the first and second moments; 0.98 as in Vaswani et al. 2017, section 5.3.
    lion: of what the sign is taken of, and of the momentum (Chen et al. 2023, algorithm 2)."""
    epsilon: float = 1e-8
    """adam, adamw, radam."""
    momentum: float = 0.0
    """sgd."""
    weight_decay: float = 0.0
    """adam, sgd, radam: added to the gradient (L2); adamw, lion: decoupled, times the rate, as fairseq's adam."""

    def __post_init__(self) -> None:
        if not 0 < self.peak_lr < math.inf:
            raise ValueError(f"peak_lr must be positive and finite, got {self.peak_lr}")
        if not all(0 <= beta < 1 for beta in self.betas) or not 0 <= self.momentum < 1:
            raise ValueError("betas and momentum must lie in [0, 1)")
        if not 0 < self.epsilon < math.inf or not 0 <= self.weight_decay < math.inf:
            raise ValueError("epsilon must be positive and weight_decay 0 or more, both finite")
        if self.momentum and self.name != "sgd":
            raise ValueError(f"momentum is SGD's; {self.name} has betas")


def make_optimizer(parameters: Iterable[nn.Parameter], config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimiser of that name over one parameter group, at the peak rate.

    Raises UserError for lion where `lion-pytorch` is not installed.
    """
    group = list(parameters)
    lr, decay, betas, epsilon = config.peak_lr, config.weight_decay, config.betas, config.epsilon
    match config.name:
        # The fused step reads and writes every weight once; same arithmetic.
        case "adam":
            return torch.optim.Adam(group, lr=lr, betas=betas, eps=epsilon, weight_decay=decay, fused=True)
        case "adamw":
            return torch.optim.AdamW(group, lr=lr, betas=betas, eps=epsilon, weight_decay=decay, fused=True)
        case "radam":
            return torch.optim.RAdam(group, lr=lr, betas=betas, eps=epsilon, weight_decay=decay)
        case "sgd":
            return torch.optim.SGD(group, lr=lr, momentum=config.momentum, weight_decay=decay)
        case "lion":
            try:
                from lion_pytorch import Lion
            except ModuleNotFoundError:
                raise UserError("optimizer lion needs lion-pytorch: pip install 'normscope[lion]'") from None
            lion: torch.optim.Optimizer = Lion(group, lr=lr, betas=betas, weight_decay=decay)
            return lion
