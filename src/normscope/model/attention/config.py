"""How the attention of a stack is built, beside its width and its heads."""

from dataclasses import dataclass, replace
from typing import Literal

from ...placement import StackShape
from ...settings.tables import check_choices

PositionEncoding = Literal["sinusoidal", "learned", "rotary", "alibi", "none"]
"""sinusoidal: Vaswani et al. 2017, section 3.5, added to the embedding; learned: Gehring et al. 2017, added likewise;
rotary: Su et al. 2021, arXiv:2104.09864, on queries and keys; alibi: Press et al. 2021, arXiv:2108.12409, on scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Attention's heads, its norms, and how far a token sees. The defaults are those of Vaswani et al. 2017."""

    key_value_heads: int | Literal["as-heads"] = "as-heads"
    """Heads of keys and values, each read by as many heads of queries (Ainslie et al. 2023, arXiv:2305.13245)."""
    head_width: int | Literal["as-width"] = "as-width"
    """Features of a head; as-width: the model's width over its heads."""
    query_key_norm: Literal["none", "per-head", "whole"] = "none"
    """A norm of queries and one of keys, each head by itself with one gain for all (Qwen 3) or over all heads together
    (OLMo 2). Where the placement's formula norms them itself, its norms stand instead."""
    soft_cap: float | Literal["none"] = "none"
    """c: scores become c · tanh(scores / c) before the softmax (Gemma 2 has 50)."""
    window_tokens: int | Literal["none"] = "none"
    """A token sees itself and the window_tokens - 1 before it; in an encoder also as many after it."""
    windowed_blocks: Literal["all", "odd"] = "all"
    """Blocks with the window: all of them, or the first, the third and so on (Gemma 2)."""
    rotary_base: float = 10_000.0
    """Of rotary positions: the longest wavelength is nearly 2π times as many tokens."""
    rotary_share: float = 1.0
    """Of rotary positions: the share of a head's features that is rotated, the first ones (GPT-NeoX has 0.25)."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("key_value_heads", "head_width", "window_tokens"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise ValueError(f"attention.{name} must be at least 1, got {value}")
        if isinstance(self.soft_cap, int | float) and not self.soft_cap > 0:
            raise ValueError(f"attention.soft_cap must be above 0, or none, got {self.soft_cap}")
        if not self.rotary_base > 1:
            raise ValueError(f"attention.rotary_base must be above 1, got {self.rotary_base}")
        if not 0 < self.rotary_share <= 1:
            raise ValueError(f"attention.rotary_share must lie above 0 and not above 1, got {self.rotary_share}")

    def window(self, block: int) -> int | None:
        """How far a token sees in a block, counted from 1; None where it sees everything."""
        reaches_everywhere = self.window_tokens == "none" or (self.windowed_blocks == "odd" and block % 2 == 0)
        return None if reaches_everywhere else self.window_tokens  # type: ignore[return-value]


def with_heads(shape: StackShape, attention: AttentionConfig) -> StackShape:
    """The stack with these heads of keys and values, and of this width.

    Raises ValueError where they do not go with its width and its heads.
    """
    key_value_heads = 0 if attention.key_value_heads == "as-heads" else attention.key_value_heads
    if key_value_heads and shape.heads % key_value_heads:
        raise ValueError(f"heads={shape.heads} must be a multiple of attention.key_value_heads={key_value_heads}")
    head_width = 0 if attention.head_width == "as-width" else attention.head_width
    if not head_width and shape.width % shape.heads:
        raise ValueError(
            f"width={shape.width} must be a multiple of heads={shape.heads}, or attention.head_width a number"
        )
    # The sizes that a stack has anyway are not written out: two shapes of one stack are equal.
    return replace(
        shape,
        key_value_heads=0 if key_value_heads == shape.heads else key_value_heads,
        head_width=0 if head_width * shape.heads == shape.width else head_width,
    )
