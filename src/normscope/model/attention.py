"""Multi-head attention over packed tokens, with key/value caches for decoding."""

# N = packed tokens of queries, M = packed tokens of keys, D = width, B = sentences, H = heads,
# T / S = longest query / key sentence, K = width per head
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from .layout import Layout

Inside = dict[str, Callable[[Tensor], Tensor]]


@dataclass(slots=True)
class Cache:
    """Keys and values of the tokens seen so far, (rows, H, S, K) per attention, for step-by-step decoding."""

    kept: dict[Any, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def extend(self, owner: Any, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append along S and return all."""
        if owner in self.kept:
            old_key, old_value = self.kept[owner]
            key, value = torch.cat([old_key, key], 2), torch.cat([old_value, value], 2)
        self.kept[owner] = key, value
        return key, value

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order (a row may be taken several times): beams move, finished sentences leave."""
        self.kept = {
            k: (key.index_select(0, rows), value.index_select(0, rows)) for k, (key, value) in self.kept.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a stack's sub-layers share in one forward pass."""

    layout: Layout
    causal: bool = False
    memory_MD: Tensor | None = None
    memory_layout: Layout | None = None
    cache: Cache | None = None


class Attention(nn.Module):
    """softmax(Q Kᵀ / √K) V over H heads, then the output projection (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, width: int, heads: int, dropout: float, *, cross: bool) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width={width} must be a multiple of heads={heads}")
        self.heads, self.dropout, self.cross = heads, dropout, cross
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)

    def matrices(self) -> Iterator[tuple[str, nn.Linear]]:
        """Weight matrices by the names that initialisation uses."""
        yield from (("query", self.query), ("key", self.key), ("value", self.value), ("output", self.output))

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        apply = _applier(inside)
        query = context.layout.to_heads(apply("query", self.query(x_ND)), self.heads)
        keep = None
        if self.cross:
            assert context.memory_layout is not None, "cross-attention needs a memory"
            key, value = self._memory(context, apply)
            keep = context.memory_layout.keep_B11T
        else:
            key = context.layout.to_heads(apply("key", self.key(x_ND)), self.heads)
            value = context.layout.to_heads(apply("value", self.value(x_ND)), self.heads)
            if context.cache is not None:
                key, value = context.cache.extend(self, key, value)
            elif not context.causal:
                keep = context.layout.keep_B11T
        # Sentences are padded on the right, so a causal mask already hides padding from every real query.
        causal = context.causal and not self.cross and context.cache is None
        mixed = attend(query, key, value, keep, causal, self.dropout if self.training else 0.0)
        return self.output(apply("output", context.layout.from_heads(mixed)))  # type: ignore[no-any-return]

    def _memory(self, context: Context, apply: Callable[[str, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        if context.cache is not None and self in context.cache.kept:
            return context.cache.kept[self]
        memory, layout = context.memory_MD, context.memory_layout
        assert memory is not None, "cross-attention needs a memory"
        assert layout is not None
        key = layout.to_heads(apply("key", self.key(memory)), self.heads)
        value = layout.to_heads(apply("value", self.value(memory)), self.heads)
        if context.cache is not None:
            context.cache.kept[self] = key, value
        return key, value


def attend(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """(B, H, T, K) queries over (B, H, S, K) keys -> (B, H, T, K).

    torch's fused CPU kernel is slower than its plain one at these sizes, several times so with oneDNN products.
    """
    if query.device.type != "cpu":
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=keep, dropout_p=dropout, is_causal=causal
        )
    with sdpa_kernel(SDPBackend.MATH):
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=keep, dropout_p=dropout, is_causal=causal
        )


def _applier(inside: Inside) -> Callable[[str, Tensor], Tensor]:
    return lambda place, x: inside[place](x) if place in inside else x
