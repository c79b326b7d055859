"""One training of a case: by a peak rate, a schedule and a horizon, or by an optimiser that is said
to need neither.
"""

import math
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from normscope.model import profile
from normscope.optim import DECAY_EVERYWHERE, OPTIMIZERS, OptimizerConfig, make_optimizer
from normscope.optim.groups import GroupConfig, GroupsConfig
from normscope.optim.schedules import ScheduleConfig, factor

from .cases import OURS, AdviceCase
from .tasks import CaseTask, baselines, task_of

FLOOR = 0.1
"""The share of the peak at which the rate ends under a schedule with an end."""
SCHEDULE_FREE_RATE, SCHEDULE_FREE_WARMUP = 0.0025, 0.1
"""The rate of its package, and the share of the updates in which that rises."""
_DECAY = OPTIMIZERS["adamw"].usual_weight_decay


def schedule_of(case: AdviceCase, warmup_updates: int) -> ScheduleConfig:
    """Returns a linear warm-up, then the decay of the case."""
    return ScheduleConfig(
        decay=case.decay,
        warmup_updates=warmup_updates,
        decay_from_updates=warmup_updates,
        floor=FLOOR,
    )


def model_of(case: AdviceCase, task: CaseTask, seed: int) -> nn.Module:
    """Builds a model with its initial weights, those that a placement takes from the first batch
    included.
    """
    model = task.model(seed)
    if case.model in OURS:
        first = task.batch(0)
        profile(model, lambda: first.run(model))
    return model


def optimizer_of(case: AdviceCase, rate: float) -> OptimizerConfig:
    """Returns the optimiser with the settings that it is usually given."""
    listed = OPTIMIZERS[case.optimizer]
    return OptimizerConfig(
        name=case.optimizer,
        peak_lr=rate,
        momentum=listed.usual_momentum,
        weight_decay=listed.usual_weight_decay,
        groups=DECAY_EVERYWHERE if case.narrower == 1 else of_narrower(case.narrower),
    )


def of_narrower(narrower: float) -> GroupsConfig:
    """Returns the rates of µP (Yang et al. 2022, arXiv:2203.03466, table 8) of a model so many
    times as wide as the one whose rate is given.
    """
    smaller = GroupConfig(lr_factor=1 / narrower)
    return GroupsConfig(
        matrix=smaller, head=smaller, norm=GroupConfig(), gate=GroupConfig(), bias=GroupConfig()
    )


def train_once(
    case: AdviceCase,
    rate: float,
    *,
    updates: int,
    warmup_updates: int,
    seed: int,
    text_file: str,
    corpus: str,
) -> dict[str, Any]:
    """Trains, and returns the losses in nats per target: of every update's batch before it, and on
    held-out text at the end.

    "valid_nats" is None where a loss was not finite. seed: of weights and batches. Nothing is
    clipped.
    """
    task = task_of(case, text_file, corpus, seed)
    model = model_of(case, task, seed)
    optimizer = make_optimizer(model, optimizer_of(case, rate))
    schedule = schedule_of(case, warmup_updates)
    rates = (
        rate * factor(schedule, update, horizon_updates=updates) for update in range(1, updates + 1)
    )
    losses = losses_of(task, model, optimizer, rates)
    return _outcome(task, model, losses, updates)


def _outcome(task: CaseTask, model: nn.Module, losses: list[float], updates: int) -> dict[str, Any]:
    """Returns the outcome of a training that was to make so many updates."""
    valid = held_out_nats(task, model) if len(losses) == updates else math.nan
    return {
        "train_nats": [round(value, 4) for value in losses],
        "valid_nats": valid if math.isfinite(valid) else None,
    }


def losses_of(
    task: CaseTask,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rates: Iterable[float],
    stop: float = math.inf,
) -> list[float]:
    """Trains, one update a rate, up to a loss of more than `stop` times the lowest; returns the
    loss of every update's batch before it.
    """
    model.train()
    losses: list[float] = []
    for number, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("lr_factor", 1.0)
        batch = task.batch(number)
        loss = batch.loss(batch.run(model))
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]) or losses[-1] > stop * min(losses):
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return losses


@torch.no_grad()
def held_out_nats(task: CaseTask, model: nn.Module) -> float:
    """Returns the mean over the held-out targets."""
    model.eval()
    batches = task.held_out()
    total = sum(float(batch.loss(batch.run(model))) * len(batch.targets) for batch in batches)
    return total / sum(len(batch.targets) for batch in batches)


def baselines_of(case: AdviceCase, *, text_file: str, corpus: str) -> dict[str, float]:
    """Returns the losses of models that know how frequent tokens are, alone and after the one
    before.
    """
    return baselines(task_of(case, text_file, corpus, 1))


def _prodigy(model: nn.Module, updates: int) -> torch.optim.Optimizer:
    """Makes Prodigy as its authors advise under a schedule with a warm-up (Mishchenko & Defazio
    2024, arXiv:2306.06101).
    """
    from prodigyopt import Prodigy

    found: torch.optim.Optimizer = Prodigy(
        model.parameters(),
        lr=1.0,
        weight_decay=_DECAY,
        safeguard_warmup=True,
        use_bias_correction=True,
    )
    return found


def _schedule_free(model: nn.Module, updates: int) -> torch.optim.Optimizer:
    """AdamW of Defazio et al. 2024 (arXiv:2405.15682), which decays by averaging."""
    from schedulefree import AdamWScheduleFree

    warmup = round(SCHEDULE_FREE_WARMUP * updates)
    found: torch.optim.Optimizer = AdamWScheduleFree(
        model.parameters(), lr=SCHEDULE_FREE_RATE, weight_decay=_DECAY, warmup_steps=warmup
    )
    return found


PACKAGES: dict[str, Callable[[nn.Module, int], torch.optim.Optimizer]] = {
    "prodigy": _prodigy,
    "schedule-free": _schedule_free,
}
"""The packages' optimisers by the name in tables."""


def installed() -> list[str]:
    """Returns the packages that are installed here."""
    modules = {"prodigy": "prodigyopt", "schedule-free": "schedulefree"}
    return [package for package in PACKAGES if find_spec(modules[package])]


def train_package(
    case: AdviceCase, *, package: str, updates: int, text_file: str, corpus: str
) -> dict[str, Any]:
    """Trains, and returns the losses as `train_once` does: Prodigy under the case's own schedule,
    Schedule-Free under none.
    """
    task = task_of(case, text_file, corpus, 1)
    model = model_of(case, task, 1)
    optimizer: Any = PACKAGES[package](model, updates)
    rates = [SCHEDULE_FREE_RATE] * updates
    if package == "prodigy":
        schedule = schedule_of(case, round(case.usual_warmup_share * updates))
        rates = [
            factor(schedule, update, horizon_updates=updates) for update in range(1, updates + 1)
        ]
    else:
        optimizer.train()
    losses = losses_of(task, model, optimizer, rates)
    if package != "prodigy":
        optimizer.eval()
    return _outcome(task, model, losses, updates)
