"""Attention, feed-forward, embeddings and stacks; a placement's formula decides how they are
joined.
"""

from .context import Cache, Context
from .initialisation import SCHEMES, initialise, renormalise, unit_vectors
from .layout import AttentionConfig, Layout, PaddedLayout
from .placed import scheduled_numbers, set_scheduled
from .profiling import profile
from .single import DecoderConfig, EncoderConfig, LanguageModel, MaskedEncoder
from .stack import Stack, StackConfig
from .transformer import EncoderDecoder, ModelConfig, stack_shape

__all__ = [
    "SCHEMES",
    "AttentionConfig",
    "Cache",
    "Context",
    "DecoderConfig",
    "EncoderConfig",
    "EncoderDecoder",
    "LanguageModel",
    "Layout",
    "MaskedEncoder",
    "ModelConfig",
    "PaddedLayout",
    "Stack",
    "StackConfig",
    "initialise",
    "profile",
    "renormalise",
    "scheduled_numbers",
    "set_scheduled",
    "stack_shape",
    "unit_vectors",
]
