"""BERT's pre-training: masked tokens and next sentences."""

from .config import MaskedConfig, MaskedRunConfig
from .objective import MaskedObjective
from .task import MASKED_LM

__all__ = ["MASKED_LM", "MaskedConfig", "MaskedObjective", "MaskedRunConfig"]
