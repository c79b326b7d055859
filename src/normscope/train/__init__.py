"""The loop, run folders, exact resume."""

from ..signals import Interrupted
from .config import StopRule, TrainConfig
from .gradients import NonFinite
from .loop import Trainer
from .protocol import Hooks, Objective, durations
from .run_folder import RunFolder
from .together.group import PeerLost

__all__ = [
    "Hooks",
    "Interrupted",
    "NonFinite",
    "Objective",
    "PeerLost",
    "RunFolder",
    "StopRule",
    "TrainConfig",
    "Trainer",
    "durations",
]
