"""Attention, feed-forward, embeddings and stacks; a placement's formula decides how they are joined."""

from .attention import Cache, Context
from .initialisation import SCHEMES, renormalise
from .layout import Layout
from .stack import Stack, StackConfig
from .transformer import EncoderDecoder, ModelConfig, stack_shape

__all__ = [
    "SCHEMES",
    "Cache",
    "Context",
    "EncoderDecoder",
    "Layout",
    "ModelConfig",
    "Stack",
    "StackConfig",
    "renormalise",
    "stack_shape",
]
