"""Schedules as pure functions, and torch's optimisers by name."""

from .groups import DECAY_EVERYWHERE, ROLES, GroupConfig, GroupsConfig, Role, roles
from .optimizers import OPTIMIZERS, OptimizerConfig, make_optimizer
from .schedules import (
    AdaptiveConfig,
    ScheduleConfig,
    UpdatesOf,
    adaptive_value,
    depends_on_horizon,
    factor,
    never_peaks,
    parse_duration,
    summed_factor,
)

__all__ = [
    "DECAY_EVERYWHERE",
    "OPTIMIZERS",
    "ROLES",
    "AdaptiveConfig",
    "GroupConfig",
    "GroupsConfig",
    "OptimizerConfig",
    "Role",
    "ScheduleConfig",
    "UpdatesOf",
    "adaptive_value",
    "depends_on_horizon",
    "factor",
    "make_optimizer",
    "never_peaks",
    "parse_duration",
    "roles",
    "summed_factor",
]
