"""The loop, run folders, exact resume."""

from .loop import Hooks, Objective, TrainConfig, Trainer, durations
from .nonfinite import NonFinite
from .run_folder import RunFolder
from .signals import Interrupted

__all__ = ["Hooks", "Interrupted", "NonFinite", "Objective", "RunFolder", "TrainConfig", "Trainer", "durations"]
