"""The loop, run folders, exact resume."""

from ..signals import Interrupted
from .config import TrainConfig
from .loop import Trainer
from .nonfinite import NonFinite
from .protocol import Hooks, Objective, durations
from .run_folder import RunFolder

__all__ = ["Hooks", "Interrupted", "NonFinite", "Objective", "RunFolder", "TrainConfig", "Trainer", "durations"]
