"""Translation: its configuration, its loss, and how it is scored."""

from .config import TranslationConfig, TranslationRunConfig, translation
from .objective import TranslationObjective
from .task import TRANSLATION

__all__ = ["TRANSLATION", "TranslationConfig", "TranslationObjective", "TranslationRunConfig", "translation"]
