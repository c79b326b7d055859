"""The loop, run folders, exact resume."""

from .loop import Task, TrainConfig, Trainer
from .nonfinite import NonFinite
from .run_folder import RunFolder
from .signals import Interrupted

__all__ = ["Interrupted", "NonFinite", "RunFolder", "Task", "TrainConfig", "Trainer"]
