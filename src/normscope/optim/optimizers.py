"""The one list of optimisers: torch's own, Muon beside AdamW, and Lion as `lion-pytorch` has it.

To add one, write how it is made and put it into `OPTIMIZERS`. Configurations, the command line, the
doctor's advice and the study that the advice is fitted by all read that list.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from ..errors import UserError, installation
from ..settings.tables import check_choices
from .groups import GroupsConfig, given_groups, parted, roles


class Muon(torch.optim.Optimizer):
    """torch's Muon over the groups of rule `muon`, whose parameters are matrices, and its AdamW
    over all others.

    Muon's step is momentum made orthogonal by five rounds of Newton and Schulz, times 0.2
    √max(rows, columns), at which it is as large as AdamW's (Liu et al. 2025, arXiv:2502.16982,
    section 2.2): one rate and one decay serve both.

    params: groups, each with its own `rule`, or parameters for one of rule `muon`. momentum is
    Muon's, which is Nesterov's; betas and eps are AdamW's. Raises ValueError for a parameter of
    rule muon without two dimensions.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        *,
        rule: Literal["muon", "adamw"] = "muon",
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "rule": rule, "momentum": momentum, "betas": betas, "eps": eps}
        super().__init__(params, {**defaults, "weight_decay": weight_decay})
        self._parts = list[torch.optim.Optimizer]()
        for of in ("muon", "adamw"):
            # The very dictionaries, so that a rate set here is set there.
            groups = [group for group in self.param_groups if group["rule"] == of]
            if groups:
                muon = of == "muon"
                part = (
                    torch.optim.Muon(groups, adjust_lr_fn="match_rms_adamw")
                    if muon
                    else AdamW(groups, fused=True)
                )
                # One state for both, by parameter, as a checkpoint reads and writes it.
                part.state = self.state
                self._parts.append(part)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update. closure: computes the loss, and its gradients, anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts:
            part.step()
        return loss


_Groups = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptimizerEntry:
    """An optimiser of the list."""

    make: Callable[[_Groups, "OptimizerConfig"], torch.optim.Optimizer]
    """The function that makes it over parameter groups that have their rates and decays already."""
    usual_momentum: float = 0.0
    """The momentum with which it is measured where nobody gives one."""
    usual_weight_decay: float = 0.0
    """The same, where a whole training is measured."""


def _lion(groups: _Groups, c: "OptimizerConfig") -> torch.optim.Optimizer:
    try:
        from lion_pytorch import Lion
    except ModuleNotFoundError:
        raise UserError(f"optimizer lion needs lion-pytorch: {installation('lion')}") from None
    lion: torch.optim.Optimizer = Lion(groups, betas=c.betas)
    return lion


def _muon(groups: _Groups, c: "OptimizerConfig") -> torch.optim.Optimizer:
    ruled = [
        {**group, "rule": "muon" if group["role"] == "matrix" else "adamw"} for group in groups
    ]
    return Muon(ruled, momentum=c.muon_momentum, betas=c.betas, eps=c.epsilon)


# The fused step reads and writes every weight once; same arithmetic.
OPTIMIZERS: dict[str, _OptimizerEntry] = {
    "adam": _OptimizerEntry(
        make=lambda groups, c: torch.optim.Adam(groups, betas=c.betas, eps=c.epsilon, fused=True)
    ),
    "adamw": _OptimizerEntry(
        make=lambda groups, c: torch.optim.AdamW(groups, betas=c.betas, eps=c.epsilon, fused=True),
        usual_weight_decay=0.01,  # torch's default
    ),
    "sgd": _OptimizerEntry(
        make=lambda groups, c: torch.optim.SGD(groups, momentum=c.momentum),
        usual_momentum=0.9,  # torch's default is 0; nobody trains a Transformer so
    ),
    "radam": _OptimizerEntry(
        make=lambda groups, c: torch.optim.RAdam(groups, betas=c.betas, eps=c.epsilon)
    ),
    "lion": _OptimizerEntry(make=_lion),
    "muon": _OptimizerEntry(make=_muon, usual_weight_decay=0.01),
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
    """adam, adamw, radam, and muon's part that is no matrix: decay rates of the first and second
    moments; 0.98 as in Vaswani et al. 2017, section 5.3. lion: of what the sign is taken of, and of
    the momentum (Chen et al. 2023, algorithm 2)."""
    epsilon: float = 1e-8
    """adam, adamw, radam, muon."""
    momentum: float = 0.0
    """sgd."""
    muon_momentum: float = 0.95
    """muon: Nesterov's, of the matrices (Jordan 2024)."""
    weight_decay: float = 0.0
    """adam, sgd, radam: added to the gradient (L2); adamw, lion, muon: decoupled, times the rate,
    as fairseq's adam. Norms, gates and biases have none unless `groups` says so."""
    groups: GroupsConfig = field(default_factory=GroupsConfig)
    """The settings that parameters of one role have of their own."""

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 < self.peak_lr < math.inf:
            raise ValueError(f"peak_lr must be positive and finite, got {self.peak_lr}")
        if not all(0 <= number < 1 for number in (*self.betas, self.momentum, self.muon_momentum)):
            raise ValueError("betas, momentum and muon_momentum must lie in [0, 1)")
        if not 0 < self.epsilon < math.inf or not 0 <= self.weight_decay < math.inf:
            raise ValueError("epsilon must be positive and weight_decay 0 or more, both finite")
        if self.momentum and self.name != "sgd":
            raise ValueError(
                f"momentum is SGD's; {self.name} has {_INSTEAD.get(self.name, 'betas')}"
            )


_INSTEAD = {"muon": "muon_momentum"}


def make_optimizer(
    model: nn.Module, config: OptimizerConfig, given: Iterable[Mapping[str, Any]] | None = None
) -> torch.optim.Optimizer:
    """Returns the optimiser of that name over all parameters of the model, a group for each role,
    at the peak rate.

    given: groups of the caller's own, as of `given_groups`. Raises UserError for lion where
    `lion-pytorch` is not installed.
    """
    settings = {"peak_lr": config.peak_lr, "weight_decay": config.weight_decay}
    weights = dict(model.named_parameters())
    groups = (
        parted(weights, roles(model), config.groups, **settings)
        if given is None
        else given_groups(model, given, config.groups, **settings)
    )
    return OPTIMIZERS[config.name].make(groups, config)


@torch.no_grad()
def clipped_step(optimizer: Optimizer, most_rms: float) -> int:
    """One step of the optimiser; returns how many parameters were held back.

    None moves further than `most_rms` times its rate, by the root mean square of its entries:
    Adafactor's clipping (Shazeer & Stern 2018, arXiv:1804.04235, section 6) and StableAdamW's
    (Wortsman et al. 2023, arXiv:2304.13013, section 3.2) with 1, for any optimiser. What is
    measured is the step that was made, weight decay included. It takes the memory of one more copy
    of the parameters.
    """
    moved = [
        (parameter, parameter.clone(), most_rms * float(group["lr"]))
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]
    optimizer.step()
    clipped = 0
    for parameter, old, most in moved:
        step = parameter - old
        rms = float(step.square().mean().sqrt())
        if rms > most:
            parameter.copy_(old + step * (most / rms))
            clipped += 1
    return clipped
