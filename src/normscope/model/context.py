"""The context that sub-layers share in a forward pass: who reads whom, and the keys and values that
decoding keeps.
"""

# M = packed tokens of the memory, D = width, B = sentences, H = heads, R = rows (beams) a sentence,
# S = places for keys, K = width per head
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .layout import Layout, PaddedLayout


class Cache:
    """The memory of step-by-step decoding of B sentences: keys and values of the memory and of the
    tokens so far.

    The R rows (beams) of a sentence are queries over one pool of S places for keys, where each
    token that any of its rows takes leaves its own; `seen_BRS` tells a row which of them are its
    history. So the memory is held once a sentence, and beams that move change that table alone: no
    key is copied. A place that no row sees any more is the next token's.
    """

    def __init__(self, memory_MD: Tensor | None, memory_layout: Layout) -> None:
        """memory_MD: None where a decoder alone reads no memory; the layout then says how many
        sentences there are.
        """
        self.memory_MD, self.memory_layout = memory_MD, memory_layout
        self.memory: dict[Any, tuple[Tensor, Tensor]] = {}
        self.own: dict[Any, tuple[Tensor, Tensor]] = {}
        sentences = memory_layout.sentences
        places = 64
        device = memory_layout.device
        self.seen_BRS = torch.zeros(sentences, 1, places, dtype=torch.bool, device=device)
        self.position_BS = torch.zeros(sentences, places, dtype=torch.int64, device=device)
        """The position in its sentence of the token whose key each place holds."""
        self.steps = self.filled = 0
        """Tokens so far, and places up to the last one that a row sees: attention reads no more of
        the pool.
        """
        self._visits = Counter[Any]()
        self._layout: Layout | None = None

    @property
    def keep_B1RS(self) -> Tensor:
        """True where a row may look."""
        return self.seen_BRS[:, None]

    def advance(self, parent_BR: Tensor) -> Layout:
        """Make room for one token a row; parent_BR: the row of the last step that each row
        continues.
        """
        self._visits.clear()
        sentences, rows = parent_BR.shape
        seen_BRS = self.seen_BRS.gather(
            1, parent_BR[:, :, None].expand(-1, -1, self.seen_BRS.shape[2])
        )
        live_BS = seen_BRS.any(1)
        needed, places = int(live_BS.sum(1).max()) + rows, live_BS.shape[1]
        if needed > places:
            more = needed - places + needed // 4
            seen_BRS, live_BS = (
                nn.functional.pad(table, (0, more)) for table in (seen_BRS, live_BS)
            )
            self.position_BS = nn.functional.pad(self.position_BS, (0, more))
            for owner, pools in self.own.items():
                # Empty places are never looked at, but 0 times what they hold must be 0.
                key, value = (nn.functional.pad(pool, (0, 0, 0, more)) for pool in pools)
                self.own[owner] = key, value
        self._place_BR = live_BS.byte().sort(dim=1, stable=True).indices[:, :rows]
        self.seen_BRS = seen_BRS.scatter_(2, self._place_BR[:, :, None], True)
        self.position_BS.scatter_(1, self._place_BR, self.steps)
        self.steps, self.filled = self.steps + 1, int(self.seen_BRS.any(1).any(0).nonzero()[-1]) + 1
        if self._layout is None or (self._layout.sentences, self._layout.longest) != (
            sentences,
            rows,
        ):
            self._layout = Layout(torch.full((sentences,), rows), parent_BR.device)
        return self._layout

    def extend(self, owner: Any, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Puts (B, H, R, K) keys and values into a pool, another each time in a step, and returns
        the filled part of it, (B, H, S, K).
        """
        self._visits[owner] += 1
        owner = owner, self._visits[owner]
        if owner not in self.own:
            shape = *key.shape[:2], self.seen_BRS.shape[2], key.shape[3]
            self.own[owner] = key.new_zeros(shape), value.new_zeros(shape)
        pools, (sentences, heads) = self.own[owner], key.shape[:2]
        pool_BH1 = torch.arange(sentences * heads, device=key.device).view(sentences, heads, 1)
        row_N = (pool_BH1 * self.seen_BRS.shape[2] + self._place_BR[:, None]).flatten()
        for pool, new in zip(pools, (key, value), strict=True):
            pool.view(-1, new.shape[3]).index_copy_(0, row_N, new.reshape(-1, new.shape[3]))
        # A product with a part of a tensor costs a copy of that part, but for MKL's.
        size = self.filled if key.dtype == torch.float32 else None
        return pools[0][:, :, :size], pools[1][:, :, :size]

    def select(self, sentences: list[int]) -> None:
        """Keep these sentences, in this order. Only after a first step."""
        assert self.own, "sentences can leave once the first step's keys are here"
        device = self.seen_BRS.device
        self.memory_layout = Layout(self.memory_layout.lengths_B[sentences], device)
        index, longest = torch.tensor(sentences, device=device), self.memory_layout.longest
        for pools, size in ((self.memory, longest), (self.own, None)):
            for owner, (key, value) in pools.items():
                pools[owner] = (
                    key[:, :, :size].index_select(0, index),
                    value[:, :, :size].index_select(0, index),
                )
        self.seen_BRS = self.seen_BRS.index_select(0, index)
        self.position_BS = self.position_BS.index_select(0, index)


Inside = dict[str, Callable[[Tensor], Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context that a stack's sub-layers share in one forward pass."""

    layout: Layout | PaddedLayout
    causal: bool = False
    memory_MD: Tensor | None = None
    memory_layout: Layout | PaddedLayout | None = None
    cache: Cache | None = None


class SublayerModule(nn.Module):
    """F of the papers as a module: x, what the stack's sub-layers share, and functions to apply
    within.
    """

    def matrices(self) -> Iterator[tuple[str, Any]]:
        """Yields its weight matrices, each with a `weight` and a `bias`, by the names that
        initialisation uses.
        """
        raise NotImplementedError


def as_factor(x: Tensor) -> Tensor:
    """x in the dtype that autocast gives to products: cast once, where each of several products
    would cast it again.
    """
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(device))
