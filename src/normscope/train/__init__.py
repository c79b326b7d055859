"""The loop, run folders, exact resume."""

from .config import TrainConfig
from .loop import Trainer
from .nonfinite import NonFinite
from .protocol import Hooks, Objective, durations
from .run_folder import RunFolder
from .signals import Interrupted

__all__ = ["Hooks", "Interrupted", "NonFinite", "Objective", "RunFolder", "TrainConfig", "Trainer", "durations"]
