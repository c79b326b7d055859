"""From a batch to a loss and to the numbers one reads."""

from .classification import ClassificationConfig, ClassificationTask
from .language_model import LanguageModelConfig, LanguageModelTask
from .masked_lm import MaskedConfig, MaskedTask
from .translation import TranslationConfig, TranslationTask

__all__ = [
    "ClassificationConfig",
    "ClassificationTask",
    "LanguageModelConfig",
    "LanguageModelTask",
    "MaskedConfig",
    "MaskedTask",
    "TranslationConfig",
    "TranslationTask",
]
