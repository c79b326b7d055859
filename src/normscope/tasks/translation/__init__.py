"""Translation: its configuration, its loss, and how it is scored."""

from .task import TRANSLATION, TranslationConfig, TranslationObjective, TranslationRunConfig, translation

__all__ = ["TRANSLATION", "TranslationConfig", "TranslationObjective", "TranslationRunConfig", "translation"]
