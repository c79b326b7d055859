"""What an optimiser may do with a model from its first update on."""

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...measure.line import Make
from ...optim import OPTIMIZERS, OptimizerConfig, make_optimizer
from ...report.doctor.advice import Advice, RatePlace, RateRange
from ..identify.found import FoundStack
from ..observe.loss import Backward
from ..trace.inputs import Inputs
from .calibration import Calibration, Facts, calibration, facts_of
from .first_update import first_update

_HORIZON_UPDATES, _REGRET_NATS, _CONFIDENCE = 150, 0.1, 0.95
"""Of the trainings that the constants were fitted to."""
_GOOD = 3.0
"""How far below the largest rate that trains the good ones reach."""


def advise(
    model: nn.Module,
    batch: Inputs,
    loss: Callable[[Any], Tensor] | None,
    *,
    optimizer: str | torch.optim.Optimizer,
    wanted_rate: float | None,
    stacks: Sequence[FoundStack],
    start: Backward | None = None,
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Advice:
    """By what the first update does at every rate, and constants from short trainings.

    Raises ValueError for an unknown optimiser, one whose class cannot be built from its own settings, or a wanted rate
    that is not positive. start: the backward pass on this batch, where there was one. watch: told of the stage, the
    rates that were looked at, and how many there are to look at.
    """
    if wanted_rate is not None and not 0 < wanted_rate < math.inf:
        raise ValueError(f"the wanted rate must be positive and finite, got {wanted_rate}")
    name, make = _maker(model, optimizer)
    seen = first_update(model, batch, loss, make, partial(watch, "rates"), start)
    sublayers = sum(len(stack.sublayers) for stack in stacks)
    facts, constants = facts_of(seen, optimizer=name, sublayers=sublayers), calibration()
    best = constants.safe_rate(facts)
    good = RateRange(low=best / _GOOD, high=best)
    return Advice(
        optimizer=name,
        source="first update",
        horizon_updates=_HORIZON_UPDATES,
        regret_nats=_REGRET_NATS,
        confidence=_CONFIDENCE,
        best_rate=best,
        best_interval=RateRange(low=best / constants.factor, high=best * constants.factor),
        good_range=good,
        stuck_rate=float(10 ** constants.foreseen(facts)),
        wanted_rate=wanted_rate,
        wanted_place=None if wanted_rate is None else _place(wanted_rate, good),
        stuck_chance=None if wanted_rate is None else constants.chance(facts, wanted_rate),
        rates=seen.rates,
        loss_along_step=tuple(value if math.isfinite(value) else None for value in seen.losses),
        stuck_chances=tuple(constants.chance(facts, rate) for rate in seen.rates),
        lowest_loss_rate=seen.critical_rate,
        notes=tuple(_notes(name, facts, constants, seen.shut_weights)),
    )


def _place(rate: float, good: RateRange) -> RatePlace:
    if rate < good.low:
        return "below"
    return "above" if rate > good.high else "in range"


def _maker(model: nn.Module, optimizer: str | torch.optim.Optimizer) -> tuple[str, Make]:
    """The optimiser's name, and what builds it over one weight."""
    if isinstance(optimizer, torch.optim.Optimizer):
        return _rebuilt(model, optimizer)
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {optimizer!r}; choose {', '.join(OPTIMIZERS)}, or give an instance")
    config = OptimizerConfig(name=optimizer, momentum=OPTIMIZERS[optimizer].usual_momentum)
    return optimizer, lambda _, weight: make_optimizer([weight], config)


def _rebuilt(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[str, Make]:
    """The same for an instance: its class again, with the settings of the weight's group."""
    kind = type(optimizer)
    names = {id(weight): name for name, weight in model.named_parameters()}
    groups = {names.get(id(weight)): group for group in optimizer.param_groups for weight in group["params"]}
    accepted = inspect.signature(kind).parameters

    def make(name: str, weight: nn.Parameter) -> torch.optim.Optimizer | None:
        if name not in groups:
            return None
        settings = {key: value for key, value in groups[name].items() if key in accepted and key != "params"}
        try:
            return kind([weight], **settings)
        except Exception as error:
            raise ValueError(
                f"{kind.__name__} cannot be built again from the settings of its groups ({error}); name one of "
                f"{', '.join(OPTIMIZERS)} instead"
            ) from error

    return kind.__name__.lower(), make


def _notes(name: str, facts: Facts, constants: Calibration, shut: int) -> list[str]:
    """Reasons to doubt."""
    notes = []
    if name not in constants.optimizers:
        notes.append(f"calibrated with {', '.join(constants.optimizers)}; {name} is taken for one like Adam")
    if facts.collapse is None and facts.rise >= facts.reach + 1:
        notes.append("no rate that was looked at loses the tokens or raises the loss: the best rate is a lower bound")
    if shut:
        notes.append(f"{shut} weights have no gradient before the first update, as behind gates that start at 0")
    return notes
