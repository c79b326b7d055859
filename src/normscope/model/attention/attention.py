"""Multi-head attention over packed tokens."""

# N = packed tokens of queries, M = packed tokens of keys, D = width, B = sentences, H = heads,
# T / S = longest query / key sentence, K = width per head
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from .cache import Cache
from .layout import Grid, Layout
from .linear.layer import Linear

Inside = dict[str, Callable[[Tensor], Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a stack's sub-layers share in one forward pass."""

    layout: Layout | Grid
    causal: bool = False
    memory_MD: Tensor | None = None
    memory_layout: Layout | Grid | None = None
    cache: Cache | None = None


class SublayerModule(nn.Module):
    """F of the papers as a module: x, what the stack's sub-layers share, and functions to apply within."""

    def matrices(self) -> Iterator[tuple[str, Any]]:
        """Its weight matrices, each with a `weight` and a `bias`, by the names that initialisation uses."""
        raise NotImplementedError


class Attention(SublayerModule):
    """softmax(Q Kᵀ / √K) V over H heads, then the output projection (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, width: int, heads: int, dropout: float, *, cross: bool) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width={width} must be a multiple of heads={heads}")
        self.heads, self.dropout, self.cross = heads, dropout, cross
        self.query, self.key = Linear(width, width), Linear(width, width)
        self.value, self.output = Linear(width, width), Linear(width, width)

    def matrices(self) -> Iterator[tuple[str, Linear]]:
        """Weight matrices by the names that initialisation uses."""
        yield from (("query", self.query), ("key", self.key), ("value", self.value), ("output", self.output))

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        apply, x_ND = _applier(inside), as_factor(x_ND)
        query = context.layout.to_heads(apply("query", self.query(x_ND)), self.heads)
        keep, causal = None, False
        if self.cross:
            assert context.memory_layout is not None, "cross-attention needs a memory"
            key, value = self._memory(context, apply)
            keep = context.memory_layout.keep_B11T
        else:
            key = context.layout.to_heads(apply("key", self.key(x_ND)), self.heads)
            value = context.layout.to_heads(apply("value", self.value(x_ND)), self.heads)
            if context.cache is not None:
                key, value = context.cache.extend(self, key, value)
                keep = context.cache.keep_B1RS
            else:
                keep, causal = context.layout.visible(context.causal)
        if context.cache is not None and query.device.type == "cpu":
            mixed = attend_few(query, key, value, keep)
        else:
            mixed = attend(query, key, value, keep, causal, self.dropout if self.training else 0.0)
        return self.output(apply("output", context.layout.from_heads(mixed)))  # type: ignore[no-any-return]

    def _memory(self, context: Context, apply: Callable[[str, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        if context.cache is not None and self in context.cache.memory:
            return context.cache.memory[self]
        memory, layout = context.memory_MD, context.memory_layout
        assert memory is not None, "cross-attention needs a memory"
        assert layout is not None
        key = layout.to_heads(apply("key", self.key(memory)), self.heads)
        value = layout.to_heads(apply("value", self.value(memory)), self.heads)
        if context.cache is not None:
            context.cache.memory[self] = key, value
        return key, value


def as_factor(x: Tensor) -> Tensor:
    """x in the dtype that autocast gives to products: cast once, where each of several products would cast it again."""
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(device))


def attend(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """(B, H, T, K) queries over (B, H, S, K) keys -> (B, H, T, K).

    torch's fused CPU kernel is slower than its plain one at these sizes, several times so with oneDNN products. The
    plain one works in the dtype it is given: bfloat16 scores and weights, the softmax between them in float32 inside.
    """

    def attended() -> Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=keep, dropout_p=dropout, is_causal=causal
        )

    if query.device.type != "cpu":
        return attended()
    with sdpa_kernel(SDPBackend.MATH), _as_given(query.dtype):
        return attended()


def attend_few(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None) -> Tensor:
    """`attend` for a few queries over many keys on a CPU, where torch's kernel would scale and copy all the keys."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    mixed: Tensor = scores.softmax(-1) @ value
    return mixed


@contextmanager
def _as_given(dtype: torch.dtype) -> Iterator[None]:
    """Keep the plain kernel from turning bfloat16 into float32 and back, which makes it take twice as long."""
    if dtype != torch.bfloat16:
        yield
        return
    before: bool = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()  # type: ignore[no-untyped-call]
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        yield
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


def _applier(inside: Inside) -> Callable[[str, Tensor], Tensor]:
    return lambda place, x: inside[place](x) if place in inside else x
