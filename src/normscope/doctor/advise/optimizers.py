"""The user's optimiser, built anew over any of the model's weights."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ...optim import DECAY_EVERYWHERE, OPTIMIZERS, OptimizerConfig, optimizer_over, roles


class Maker:
    """Makes optimisers of one kind, each over some of a model's weights, with rates as shares of the largest rate."""

    def __init__(self, name: str, over: Callable[[Mapping[str, nn.Parameter]], torch.optim.Optimizer | None]) -> None:
        self.name = name
        self._over = over

    def over(self, weights: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
        """Over these weights, by name. Raises ValueError where none of them is trained."""
        made = self._over(weights)
        if made is None:
            raise ValueError("the optimiser moves none of the model's weights: was it made over this model?")
        return made


def maker_of(model: nn.Module, optimizer: str | torch.optim.Optimizer) -> Maker:
    """optimizer: a name of `normscope.optim.OPTIMIZERS`, or an instance over the model's parameters.

    Raises ValueError for an unknown name; `Maker.over` does for a class that cannot be built from its own settings.
    """
    if isinstance(optimizer, torch.optim.Optimizer):
        return Maker(type(optimizer).__name__.lower(), _rebuilding(model, optimizer))
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {optimizer!r}; choose {', '.join(OPTIMIZERS)}, or give an instance")
    listed = OPTIMIZERS[optimizer]
    return of_config(
        model,
        OptimizerConfig(
            name=optimizer,
            peak_lr=1.0,
            momentum=listed.usual_momentum,
            weight_decay=listed.usual_weight_decay,
            groups=DECAY_EVERYWHERE,
        ),
    )


def of_config(model: nn.Module, config: OptimizerConfig) -> Maker:
    """What makes the optimiser that the configuration describes, over weights of that model."""
    found = roles(model)
    return Maker(config.name, lambda weights: optimizer_over(weights, found, config))


def wanted_rate_of(optimizer: str | torch.optim.Optimizer) -> float | None:
    """The rate that an instance is set to, the largest of its groups; None for a name."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return None
    rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
    return max(rates, default=0.0) or None


def _rebuilding(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[[Mapping[str, nn.Parameter]], torch.optim.Optimizer | None]:
    """The instance's class again, with the settings of each weight's group."""
    kind: Any = type(optimizer)
    names = {id(weight): name for name, weight in model.named_parameters()}
    groups = {names.get(id(weight)): group for group in optimizer.param_groups for weight in group["params"]}
    accepted = inspect.signature(kind).parameters
    largest = wanted_rate_of(optimizer) or 1.0

    def over(weights: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer | None:
        parted: dict[int, tuple[dict[str, object], list[nn.Parameter]]] = {}
        for name, weight in weights.items():
            if name in groups:
                group = groups[name]
                parted.setdefault(id(group), (group, []))[1].append(weight)
        if not parted:
            return None
        made = []
        for group, members in parted.values():
            settings = {key: value for key, value in group.items() if key in accepted and key != "params"}
            made.append(settings | {"params": members, "lr": float(str(group["lr"])) / largest})
        try:
            rebuilt: torch.optim.Optimizer = kind(made)
        except Exception as error:
            raise ValueError(
                f"{kind.__name__} cannot be built again from the settings of its groups ({error}); name one of "
                f"{', '.join(OPTIMIZERS)} instead"
            ) from error
        return rebuilt

    return over
