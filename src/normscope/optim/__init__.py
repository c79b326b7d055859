"""Schedules as pure functions, and torch's optimisers by name."""

from .optimizers import OptimizerConfig, make_optimizer
from .schedules import ScheduleConfig, UpdatesOf, factor, parse_duration, summed_factor, torch_scheduler

__all__ = [
    "OptimizerConfig",
    "ScheduleConfig",
    "UpdatesOf",
    "factor",
    "make_optimizer",
    "parse_duration",
    "summed_factor",
    "torch_scheduler",
]
