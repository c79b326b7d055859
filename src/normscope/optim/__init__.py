"""Schedules as pure functions, and torch's optimisers by name."""

from .adaptive import AdaptiveConfig, adaptive_value
from .optimizers import OPTIMIZERS, OptimizerConfig, make_optimizer
from .schedules import (
    ScheduleConfig,
    UpdatesOf,
    depends_on_horizon,
    factor,
    never_peaks,
    parse_duration,
    summed_factor,
)
from .torch_schedule import Schedule

__all__ = [
    "OPTIMIZERS",
    "AdaptiveConfig",
    "OptimizerConfig",
    "Schedule",
    "ScheduleConfig",
    "UpdatesOf",
    "adaptive_value",
    "depends_on_horizon",
    "factor",
    "make_optimizer",
    "never_peaks",
    "parse_duration",
    "summed_factor",
]
