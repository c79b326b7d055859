"""Whole trainings by optimisers that promise to need no rate, or no schedule, as their packages are installed."""

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from normscope.optim import OPTIMIZERS
from normscope.optim.schedules import factor

from ..engine.pieces import Pieces
from .cases import AdviceCase, AdviceConfig
from .ladder import piece_of
from .tasks import task_of
from .training import held_out_nats, losses_of, model_of, schedule_of

_DECAY = OPTIMIZERS["adamw"].usual_weight_decay
SCHEDULE_FREE_RATE, SCHEDULE_FREE_WARMUP = 0.0025, 0.1
"""The package's own rate, and the share of the updates in which it rises."""


def _prodigy(model: nn.Module, updates: int) -> torch.optim.Optimizer:
    """As its authors advise under a schedule with a warm-up (Mishchenko & Defazio 2024, arXiv:2306.06101)."""
    from prodigyopt import Prodigy

    found: torch.optim.Optimizer = Prodigy(
        model.parameters(), lr=1.0, weight_decay=_DECAY, safeguard_warmup=True, use_bias_correction=True
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
"""By the name in tables."""


def installed() -> list[str]:
    """Which of them there are here."""
    modules = {"prodigy": "prodigyopt", "schedule-free": "schedulefree"}
    return [package for package in PACKAGES if find_spec(modules[package])]


def package_trained(
    case: AdviceCase, package: str, updates: int, config: AdviceConfig, pieces: Pieces
) -> dict[str, Any]:
    """What `train_package` returns, from its piece or now."""
    found: dict[str, Any] = piece_of(
        case, f"{updates}_{package}", config, pieces, train_package, package=package, updates=updates
    )
    return found


def train_package(case: AdviceCase, *, package: str, updates: int, text_file: str, corpus: str) -> dict[str, Any]:
    """Losses as of `train_once`: Prodigy under the case's own schedule, Schedule-Free under none."""
    task = task_of(case, text_file, corpus, 1)
    model = model_of(case, task, 1)
    optimizer: Any = PACKAGES[package](model, updates)
    rates = [SCHEDULE_FREE_RATE] * updates
    if package == "prodigy":
        schedule = schedule_of(case, round(case.usual_warmup_share * updates))
        rates = [factor(schedule, update, horizon_updates=updates) for update in range(1, updates + 1)]
    else:
        optimizer.train()
    losses = losses_of(task, model, optimizer, rates)
    if package != "prodigy":
        optimizer.eval()
    valid = held_out_nats(task, model) if len(losses) == updates else math.nan
    return {
        "train_nats": [round(value, 4) for value in losses],
        "valid_nats": valid if math.isfinite(valid) else None,
    }
