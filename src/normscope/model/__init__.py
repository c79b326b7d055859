"""Attention, feed-forward, embeddings and stacks; a placement's formula decides how they are joined."""

from .attention import AttentionConfig, Cache, Context, Grid, Layout
from .classifier import PairClassifier
from .decoder import DecoderConfig, LanguageModel
from .encoder import EncoderConfig, MaskedEncoder
from .initialisation import SCHEMES, initialise, renormalise, unit_vectors
from .profiling import profile
from .schedules import scheduled_numbers, set_scheduled
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
    "Grid",
    "LanguageModel",
    "Layout",
    "MaskedEncoder",
    "ModelConfig",
    "PairClassifier",
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
