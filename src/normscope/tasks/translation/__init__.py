"""Translation: its configuration, its loss, and how it is scored."""

from .objective import TranslationConfig, TranslationObjective, TranslationRunConfig, translation
from .task import TRANSLATION

__all__ = ["TRANSLATION", "TranslationConfig", "TranslationObjective", "TranslationRunConfig", "translation"]
