"""Fine-tuning of a pre-trained encoder on labelled sentence pairs."""

from .config import ClassificationConfig, PairRunConfig, StartConfig
from .objective import ClassificationObjective
from .task import PAIR_CLASSIFICATION

__all__ = ["PAIR_CLASSIFICATION", "ClassificationConfig", "ClassificationObjective", "PairRunConfig", "StartConfig"]
