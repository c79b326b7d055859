"""Schedules as pure functions, and torch's optimisers by name."""

from .adaptive import AdaptiveConfig, adaptive_value
from .optimizers import OPTIMIZERS, OptimizerConfig, make_optimizer
from .schedules import ScheduleConfig, UpdatesOf, factor, parse_duration, summed_factor
from .torch_schedule import Schedule

__all__ = [
    "OPTIMIZERS",
    "AdaptiveConfig",
    "OptimizerConfig",
    "Schedule",
    "ScheduleConfig",
    "UpdatesOf",
    "adaptive_value",
    "factor",
    "make_optimizer",
    "parse_duration",
    "summed_factor",
]
