"""The loop, run folders, exact resume."""

from ..signals import Interrupted
from .config import StopRule, TrainConfig
from .gradients import NonFinite
from .group import ALONE, Group, PeerLost
from .loop import Trainer
from .protocol import Hooks, Objective, Share, durations
from .run_folder import RunFolder

__all__ = [
    "ALONE",
    "Group",
    "Hooks",
    "Interrupted",
    "NonFinite",
    "Objective",
    "PeerLost",
    "RunFolder",
    "Share",
    "StopRule",
    "TrainConfig",
    "Trainer",
    "durations",
]
