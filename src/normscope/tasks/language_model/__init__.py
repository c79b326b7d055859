"""Decoder-only language modelling: the next token of text, and perplexity."""

from .config import LanguageModelConfig, LanguageModelRunConfig
from .objective import LanguageModelObjective
from .task import LANGUAGE_MODEL

__all__ = ["LANGUAGE_MODEL", "LanguageModelConfig", "LanguageModelObjective", "LanguageModelRunConfig"]
