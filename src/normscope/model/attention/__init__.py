"""Multi-head attention over packed tokens: its sizes, who sees whom, positions, and what decoding remembers."""

from .attention import Attention
from .context import Cache, Context, Inside, SublayerModule, as_factor
from .layout import AttentionConfig, Layout, PaddedLayout, PositionEncoding, with_heads
from .scores import attend

__all__ = [
    "Attention",
    "AttentionConfig",
    "Cache",
    "Context",
    "Inside",
    "Layout",
    "PaddedLayout",
    "PositionEncoding",
    "SublayerModule",
    "as_factor",
    "attend",
    "with_heads",
]
