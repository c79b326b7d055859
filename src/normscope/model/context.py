"""What sub-layers share in a forward pass: who reads whom, and the keys and values that decoding remembers."""

# M = packed tokens of the memory, D = width, B = sentences, H = heads, R = rows (beams) a sentence,
# S = places for keys, K = width per head
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .layout import Layout, PaddedLayout


class Cache:
    """What step-by-step decoding of B sentences remembers: keys and values of the memory and of the tokens so far.

    The R rows (beams) of a sentence are queries over one pool of S places for keys, where each token that any of its
    rows takes leaves its own; `seen_BRS` tells a row which of them are its history. So the memory is held once a
    sentence, and beams that move change that table alone: no key is copied. Attention reads the whole pool, empty
    places too, because a product with a part of a larger tensor costs a copy of that part.
    """

    def __init__(self, memory_MD: Tensor | None, memory_layout: Layout) -> None:
        """memory_MD: None where a decoder alone reads no memory; the layout then says how many sentences there are."""
        self.memory_MD, self.memory_layout = memory_MD, memory_layout
        self.memory: dict[Any, tuple[Tensor, Tensor]] = {}
        self.own: dict[Any, tuple[Tensor, Tensor]] = {}
        sentences, places, device = memory_layout.sentences, 64, memory_layout.device
        self.seen_BRS = torch.zeros(sentences, 1, places, dtype=torch.bool, device=device)
        self.position_BS = torch.zeros(sentences, places, dtype=torch.int64, device=device)
        """In its sentence, of the token that each place holds the key of."""
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
        self.position_BS[:, self.filled : self.filled + rows] = self.steps
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
        assert self.own, "sentences can leave once the first step's keys are here"
        device = self.seen_BRS.device
        self.memory_layout = Layout(self.memory_layout.lengths_B[sentences], device)
        index, longest = torch.tensor(sentences, device=device), self.memory_layout.longest
        for pools, size in ((self.memory, longest), (self.own, None)):
            for owner, (key, value) in pools.items():
                pools[owner] = key[:, :, :size].index_select(0, index), value[:, :, :size].index_select(0, index)
        self.seen_BRS = self.seen_BRS.index_select(0, index)
        self.position_BS = self.position_BS.index_select(0, index)

    def _forget_unseen(self, rows: int) -> None:
        """Move the keys that some row still sees to the front; grow the pool where they fill most of it."""
        live_BS = self.seen_BRS.any(1)
        self.filled, places = int(live_BS.sum(1).max()), live_BS.shape[1]
        order_BS = live_BS.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, : self.filled]
        needed = self.filled + rows
        size = places if needed * 3 <= places * 2 else needed * 2
        order_BRS = order_BS[:, None].expand(-1, self.seen_BRS.shape[1], -1)
        seen = nn.functional.pad(self.seen_BRS.gather(2, order_BRS), (0, size - self.filled))
        self.position_BS = nn.functional.pad(self.position_BS.gather(1, order_BS), (0, size - self.filled))
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


Inside = dict[str, Callable[[Tensor], Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a stack's sub-layers share in one forward pass."""

    layout: Layout | PaddedLayout
    causal: bool = False
    memory_MD: Tensor | None = None
    memory_layout: Layout | PaddedLayout | None = None
    cache: Cache | None = None


class SublayerModule(nn.Module):
    """F of the papers as a module: x, what the stack's sub-layers share, and functions to apply within."""

    def matrices(self) -> Iterator[tuple[str, Any]]:
        """Its weight matrices, each with a `weight` and a `bias`, by the names that initialisation uses."""
        raise NotImplementedError


def as_factor(x: Tensor) -> Tensor:
    """x in the dtype that autocast gives to products: cast once, where each of several products would cast it again."""
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(device))
