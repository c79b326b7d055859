"""Schedules as pure functions, and torch's optimisers by name."""

from .adaptive import AdaptiveConfig, Permitted, adaptive_value
from .groups import DECAY_EVERYWHERE, GroupConfig, GroupsConfig
from .optimizers import OPTIMIZERS, OptimizerConfig, make_optimizer, optimizer_over
from .roles import ROLES, Role, roles
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
    "DECAY_EVERYWHERE",
    "OPTIMIZERS",
    "ROLES",
    "AdaptiveConfig",
    "GroupConfig",
    "GroupsConfig",
    "OptimizerConfig",
    "Permitted",
    "Role",
    "Schedule",
    "ScheduleConfig",
    "UpdatesOf",
    "adaptive_value",
    "depends_on_horizon",
    "factor",
    "make_optimizer",
    "never_peaks",
    "optimizer_over",
    "parse_duration",
    "roles",
    "summed_factor",
]
