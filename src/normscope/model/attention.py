"""Multi-head attention over packed tokens, with key/value caches for decoding."""

# N = packed tokens of queries, M = packed tokens of keys, D = width, B = sentences, H = heads,
# T / S = longest query / key sentence, K = width per head, R = rows (beams) a sentence
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from .layout import Layout
from .linear import Linear

Inside = dict[str, Callable[[Tensor], Tensor]]


class Cache:
    """What step-by-step decoding of B sentences remembers: keys and values of the memory and of the tokens so far.

    The R rows (beams) of a sentence are queries over one pool of S places for keys, where each token that any of its
    rows takes leaves its own; `seen_BRS` tells a row which of them are its history. So the memory is held once a
    sentence, and beams that move change that table alone: no key is copied. Attention reads the whole pool, empty
    places too, because a product with a part of a larger tensor costs a copy of that part.
    """

    def __init__(self, memory_MD: Tensor, memory_layout: Layout) -> None:
        self.memory_MD, self.memory_layout = memory_MD, memory_layout
        self.memory: dict[Any, tuple[Tensor, Tensor]] = {}
        self.own: dict[Any, tuple[Tensor, Tensor]] = {}
        self.seen_BRS = torch.zeros(memory_layout.sentences, 1, 64, dtype=torch.bool, device=memory_layout.device)
        self.steps = self.filled = 0
        self._layout: Layout | None = None

    @property
    def keep_B1RS(self) -> Tensor:
        """True where a row may look."""
        return self.seen_BRS[:, None]

    def advance(self, parent_BR: Tensor) -> Layout:
        """Make room for one token a row; parent_BR: the row of the last step that each row continues."""
        sentences, rows = parent_BR.shape
        places = self.seen_BRS.shape[2]
        self.seen_BRS = self.seen_BRS.gather(1, parent_BR[:, :, None].expand(-1, -1, places))
        if self.filled + rows > places:
            self._forget_unseen(rows)
        self.seen_BRS[:, :, self.filled : self.filled + rows] = torch.eye(rows, dtype=torch.bool)
        self.steps, self.filled = self.steps + 1, self.filled + rows
        if self._layout is None or (self._layout.sentences, self._layout.longest) != (sentences, rows):
            self._layout = Layout(torch.full((sentences,), rows), parent_BR.device)
        return self._layout

    def extend(self, owner: Any, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put (B, H, R, K) keys and values into the pool and return all of it, (B, H, S, K)."""
        if owner not in self.own:
            shape = *key.shape[:2], self.seen_BRS.shape[2], key.shape[3]
            self.own[owner] = key.new_zeros(shape), value.new_zeros(shape)
        pools = self.own[owner]
        for pool, new in zip(pools, (key, value), strict=True):
            pool[:, :, self.filled - new.shape[2] : self.filled] = new
        return pools

    def select(self, sentences: list[int]) -> None:
        """Keep these sentences, in this order. Only after a first step."""
        assert self.memory, "sentences can leave once the memory's keys are here"
        device = self.seen_BRS.device
        self.memory_layout = Layout(self.memory_layout.lengths_B[sentences], device)
        index, longest = torch.tensor(sentences, device=device), self.memory_layout.longest
        for pools, size in ((self.memory, longest), (self.own, None)):
            for owner, (key, value) in pools.items():
                pools[owner] = key[:, :, :size].index_select(0, index), value[:, :, :size].index_select(0, index)
        self.seen_BRS = self.seen_BRS.index_select(0, index)

    def _forget_unseen(self, rows: int) -> None:
        """Move the keys that some row still sees to the front; grow the pool where they fill most of it."""
        live_BS = self.seen_BRS.any(1)
        self.filled, places = int(live_BS.sum(1).max()), live_BS.shape[1]
        order_BS = live_BS.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, : self.filled]
        needed = self.filled + rows
        size = places if needed * 3 <= places * 2 else needed * 2
        order_BRS = order_BS[:, None].expand(-1, self.seen_BRS.shape[1], -1)
        seen = functional.pad(self.seen_BRS.gather(2, order_BRS), (0, size - self.filled))
        for owner, pools in self.own.items():
            self.own[owner] = _moved(pools[0], order_BS, size), _moved(pools[1], order_BS, size)
        self.seen_BRS = seen


def _moved(pool: Tensor, order_BS: Tensor, size: int) -> Tensor:
    """These places of the pool, at the front of one with `size` places."""
    sentences, heads, places, width = pool.shape
    first = torch.arange(sentences * heads, device=pool.device).view(sentences, heads, 1) * places
    moved = pool.view(-1, width).index_select(0, (first + order_BS[:, None]).flatten())
    # Empty places are never looked at, but 0 times what they hold must be 0.
    target = pool if size == places else pool.new_zeros(sentences, heads, size, width)
    target[:, :, : order_BS.shape[1]] = moved.view(sentences, heads, -1, width)
    return target


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
        self.query, self.key = Linear(width, width), Linear(width, width)
        self.value, self.output = Linear(width, width), Linear(width, width)

    def matrices(self) -> Iterator[tuple[str, Linear]]:
        """Weight matrices by the names that initialisation uses."""
        yield from (("query", self.query), ("key", self.key), ("value", self.value), ("output", self.output))

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        apply, x_ND = _applier(inside), as_factor(x_ND)
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
                keep = context.cache.keep_B1RS
            elif not context.causal:
                keep = context.layout.keep_B11T
        # Sentences are padded on the right, so a causal mask already hides padding from every real query.
        causal = context.causal and not self.cross and context.cache is None
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
