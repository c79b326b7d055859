"""The one list of optimisers: torch's own, and Lion as `lion-pytorch` has it.

To add one, write how it is made and put it into `OPTIMIZERS`. Configurations, the command line, the doctor's advice and
the study that the advice is fitted by all read that list.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from ..errors import UserError, installation
from ..settings.choices import check_choices

Weights = list[nn.Parameter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An optimiser of the list."""

    make: Callable[[Weights, "OptimizerConfig"], torch.optim.Optimizer]
    """Over one parameter group, at the peak rate."""
    usual_momentum: float = 0.0
    """What it is measured with where nobody says."""
    usual_weight_decay: float = 0.0
    """The same, where a whole training is measured."""
    bears_as: str = ""
    """Another optimiser whose largest stable rates are its own; empty where it has a constant of its own."""
    searched_rates: tuple[float, float] = (2.15e-3, 1.0)
    """Between which a search for its largest stable rate begins and ends."""


# The fused step reads and writes every weight once; same arithmetic.
def _adam(weights: Weights, c: "OptimizerConfig") -> torch.optim.Optimizer:
    return torch.optim.Adam(
        weights, lr=c.peak_lr, betas=c.betas, eps=c.epsilon, weight_decay=c.weight_decay, fused=True
    )


def _adamw(weights: Weights, c: "OptimizerConfig") -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        weights, lr=c.peak_lr, betas=c.betas, eps=c.epsilon, weight_decay=c.weight_decay, fused=True
    )


def _radam(weights: Weights, c: "OptimizerConfig") -> torch.optim.Optimizer:
    return torch.optim.RAdam(weights, lr=c.peak_lr, betas=c.betas, eps=c.epsilon, weight_decay=c.weight_decay)


def _sgd(weights: Weights, c: "OptimizerConfig") -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=c.peak_lr, momentum=c.momentum, weight_decay=c.weight_decay)


def _lion(weights: Weights, c: "OptimizerConfig") -> torch.optim.Optimizer:
    try:
        from lion_pytorch import Lion
    except ModuleNotFoundError:
        raise UserError(f"optimizer lion needs lion-pytorch: {installation('lion')}") from None
    lion: torch.optim.Optimizer = Lion(weights, lr=c.peak_lr, betas=c.betas, weight_decay=c.weight_decay)
    return lion


OPTIMIZERS: dict[str, Listed] = {
    "adam": Listed(make=_adam),
    # 0.01 is torch's default.
    "adamw": Listed(make=_adamw, usual_weight_decay=0.01, bears_as="adam"),
    # torch's default is a momentum of 0; nobody trains a Transformer so.
    "sgd": Listed(make=_sgd, usual_momentum=0.9, searched_rates=(0.1, 100.0)),
    "radam": Listed(make=_radam, searched_rates=(4.64e-3, 2.15)),
    "lion": Listed(make=_lion, searched_rates=(4.64e-4, 0.215)),
}

if TYPE_CHECKING:
    OptimizerName = str
else:
    OptimizerName = Literal[tuple(OPTIMIZERS)]
"""A name of the list, as a type that validation knows the values of."""


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
        check_choices(self)
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
    return OPTIMIZERS[config.name].make(list(parameters), config)
