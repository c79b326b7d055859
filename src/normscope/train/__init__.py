"""The loop, run folders, exact resume."""

from ..signals import Interrupted
from .config import StopRule, TrainConfig
from .loop import Trainer
from .nonfinite import NonFinite
from .protocol import Hooks, Objective, Share, durations
from .replicas import ALONE, Group, PeerLost
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
