"""From a batch to a loss and to the numbers one reads."""

from .translation import TranslationConfig, TranslationTask

__all__ = ["TranslationConfig", "TranslationTask"]
