"""Multi-head attention over packed tokens: its sizes, who sees whom, positions, and what decoding remembers."""

from .attention import Attention
from .cache import Cache
from .config import AttentionConfig, PositionEncoding, with_heads
from .context import Context, Inside, SublayerModule, as_factor
from .layout import Grid, Layout
from .products import attend

__all__ = [
    "Attention",
    "AttentionConfig",
    "Cache",
    "Context",
    "Grid",
    "Inside",
    "Layout",
    "PositionEncoding",
    "SublayerModule",
    "as_factor",
    "attend",
    "with_heads",
]
