"""Multi-head attention over packed tokens, with key/value caches for decoding."""

# N = packed tokens of queries, M = packed tokens of keys, D = width, B = sentences, H = heads,
# T / S = longest query / key sentence, K = width per head, R = rows (beams) a sentence
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from .layout import Layout

Inside = dict[str, Callable[[Tensor], Tensor]]


class Cache:
    """What step-by-step decoding of B sentences remembers: keys and values of the memory and of the tokens so far.

    The R rows (beams) of a sentence are queries over one pool of keys, those of every token that any of its rows has
    taken; `seen_BRS` tells a row which of them are its own history. So the memory is held once a sentence, and beams
    that move change the table alone: no key is copied.
    """

    def __init__(self, memory_MD: Tensor, memory_layout: Layout) -> None:
        self.memory_MD, self.memory_layout = memory_MD, memory_layout
        self.memory: dict[Any, tuple[Tensor, Tensor]] = {}
        self.own: dict[Any, tuple[Tensor, Tensor]] = {}
        self.layout: Layout | None = None
        self.seen_BRS: Tensor | None = None
        self.steps = 0

    @property
    def keep_B1RS(self) -> Tensor | None:
        """True where a row may look; None where each row may look at everything, as in greedy decoding."""
        assert self.seen_BRS is not None, "a cache is advanced before it is read"
        return None if self.seen_BRS.shape[2] == self.steps else self.seen_BRS[:, None]

    def advance(self, parent_BR: Tensor) -> Layout:
        """Make room for one token a row; parent_BR: the row of the last step that each row continues."""
        sentences, rows = parent_BR.shape
        self.steps += 1
        seen = torch.eye(rows, dtype=torch.bool, device=parent_BR.device).expand(sentences, -1, -1)
        if self.seen_BRS is not None:
            history = parent_BR[:, :, None].expand(-1, -1, self.seen_BRS.shape[2])
            seen = torch.cat([self.seen_BRS.gather(1, history), seen], 2)
        self.seen_BRS = seen
        if self.layout is None or (self.layout.sentences, self.layout.longest) != (sentences, rows):
            self.layout = Layout(torch.full((sentences,), rows), parent_BR.device)
        return self.layout

    def extend(self, owner: Any, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, H, R, K) keys and values to the pool and return all of it, (B, H, S, K).

        Appended by copying: a product with a slice of a larger buffer costs several times the copy.
        """
        if owner in self.own:
            old_key, old_value = self.own[owner]
            key, value = torch.cat([old_key, key], 2), torch.cat([old_value, value], 2)
        self.own[owner] = key, value
        return key, value

    def select(self, sentences: list[int]) -> None:
        """Keep these sentences, in this order. Only after a first step."""
        assert self.memory, "sentences can leave once the memory's keys are here"
        assert self.seen_BRS is not None
        self.memory_layout = Layout(self.memory_layout.lengths_B[sentences], self.seen_BRS.device)
        index, longest = torch.tensor(sentences, device=self.seen_BRS.device), self.memory_layout.longest
        self.memory = {
            owner: (key[:, :, :longest].index_select(0, index), value[:, :, :longest].index_select(0, index))
            for owner, (key, value) in self.memory.items()
        }
        self.own = {
            owner: (key.index_select(0, index), value.index_select(0, index))
            for owner, (key, value) in self.own.items()
        }
        self.seen_BRS = self.seen_BRS.index_select(0, index)


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


def attend_few(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None) -> Tensor:
    """`attend` for a few queries over many keys on a CPU, where torch's kernel would scale and copy all the keys."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    mixed: Tensor = scores.softmax(-1) @ value
    return mixed


def _applier(inside: Inside) -> Callable[[str, Tensor], Tensor]:
    return lambda place, x: inside[place](x) if place in inside else x
