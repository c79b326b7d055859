"""From a batch to a loss and to the numbers one reads."""

from .language_model import LanguageModelConfig, LanguageModelTask
from .masked_lm import MaskedConfig, MaskedTask
from .translation import TranslationConfig, TranslationTask

__all__ = [
    "LanguageModelConfig",
    "LanguageModelTask",
    "MaskedConfig",
    "MaskedTask",
    "TranslationConfig",
    "TranslationTask",
]
