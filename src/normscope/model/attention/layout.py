"""Packed tokens: the stream holds real tokens only, (N, D); attention alone needs them as a grid of sentences.

Padding a batch of sentences and computing on the padding costs what the padding is worth (a sixth of all work in
length-bucketed translation batches), so every position-wise operation runs on the N real tokens.
"""

# N = real tokens of a batch, B = sentences, T = longest sentence, H = heads, K = width per head
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Layout:
    """Where the N packed tokens of a batch lie in a (B, T) grid of right-padded sentences."""

    def __init__(self, lengths_B: Tensor, device: torch.device | str = "cpu") -> None:
        """lengths_B: int64 on the CPU, real tokens per sentence, at least 1 each. Raises ValueError otherwise."""
        if lengths_B.numel() == 0 or int(lengths_B.min()) < 1:
            raise ValueError("a layout needs at least one sentence and at least one token in each")
        self.lengths_B = lengths_B
        self.sentences, self.longest = lengths_B.numel(), int(lengths_B.max())
        grid_BT = torch.arange(self.longest) < lengths_B[:, None]
        self.keep_BT = grid_BT.to(device)
        cells_N = grid_BT.flatten().nonzero().squeeze(1)
        self.cells_N, self.tokens = cells_N.to(device), cells_N.numel()
        self.full = self.tokens == self.sentences * self.longest
        self._rows: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    @property
    def device(self) -> torch.device:
        return self.cells_N.device

    @property
    def positions_N(self) -> Tensor:
        """Position of each packed token in its sentence, from 0."""
        return self.cells_N % self.longest

    @property
    def first_B(self) -> Tensor:
        """The packed token that each sentence begins with."""
        return (self.lengths_B.cumsum(0) - self.lengths_B).to(self.device)

    @property
    def keep_B11T(self) -> Tensor | None:
        """True where a key may be looked at; None where nothing is padded."""
        return None if self.full else self.keep_BT[:, None, None, :]

    def visible(self, causal: bool) -> tuple[Tensor | None, bool]:
        """What a query may look at: where keys are hidden from some, and whether each is hidden from those before."""
        # Sentences are padded on the right, so a causal mask already hides padding from every real query.
        return (None, True) if causal else (self.keep_B11T, False)

    def pack(self, x_BT: Tensor) -> Tensor:
        """(B, T, ...) grid -> (N, ...) packed tokens."""
        return x_BT.reshape(-1, *x_BT.shape[2:]).index_select(0, self.cells_N)

    def unpack(self, x_N: Tensor, fill: float = 0.0) -> Tensor:
        """(N, ...) packed tokens -> (B, T, ...) grid, padding filled with `fill`."""
        grid = x_N.new_full((self.sentences * self.longest, *x_N.shape[1:]), fill)
        return grid.index_copy(0, self.cells_N, x_N).view(self.sentences, self.longest, *x_N.shape[1:])

    def to_heads(self, x_ND: Tensor, heads: int) -> Tensor:
        """(N, H·K) packed tokens -> (B, H, T, K) grid with zeros in the padding."""
        to_grid, to_tokens, padding = self._head_rows(heads)
        rows = _rearrange(x_ND.reshape(self.tokens * heads, -1), to_grid, to_tokens, padding, None)
        return rows.view(self.sentences, heads, self.longest, -1)

    def from_heads(self, x_BHTK: Tensor) -> Tensor:
        """(B, H, T, K) grid -> (N, H·K) packed tokens."""
        heads = x_BHTK.shape[1]
        to_grid, to_tokens, padding = self._head_rows(heads)
        rows = _rearrange(x_BHTK.reshape(-1, x_BHTK.shape[-1]), to_tokens, to_grid, None, padding)
        return rows.view(self.tokens, -1)

    def _head_rows(self, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Between rows (N, H) and (B, H, T): token row of each grid row, its inverse, and the grid's padding rows."""
        if heads not in self._rows:
            head = torch.arange(heads, device=self.device)
            sentence, position = self.cells_N // self.longest, self.positions_N
            to_tokens = ((sentence[:, None] * heads + head) * self.longest + position[:, None]).flatten()
            to_grid = torch.zeros(self.sentences * heads * self.longest, dtype=torch.int64, device=self.device)
            to_grid[to_tokens] = torch.arange(self.tokens * heads, device=self.device)
            padding_BHT = ~self.keep_BT[:, None, :].expand(-1, heads, -1)
            self._rows[heads] = to_grid, to_tokens, padding_BHT.flatten().nonzero().squeeze(1)
        return self._rows[heads]


class Grid:
    """A (B, T) grid whose every cell is computed, padding too: nothing about it depends on values, so it compiles.

    Its packed tokens are the cells in order, N = B·T.
    """

    def __init__(self, sentences: int, longest: int, padding_BT: Tensor | None = None) -> None:
        """padding_BT: True where there is no token, anywhere in a sentence; None where there is one in every cell."""
        self.sentences, self.longest, self.padding_BT = sentences, longest, padding_BT

    @property
    def keep_B11T(self) -> Tensor | None:
        """True where a key may be looked at; None where nothing is padded."""
        return None if self.padding_BT is None else ~self.padding_BT[:, None, None, :]

    def visible(self, causal: bool) -> tuple[Tensor | None, bool]:
        """As a layout's. Padding before the first token, which would see nothing, sees itself: all stays finite."""
        keep = self.keep_B11T
        if keep is None or not causal:
            return keep, causal
        place_T = torch.arange(self.longest, device=keep.device)
        return keep & (place_T[:, None] >= place_T) | (place_T[:, None] == place_T), False

    def to_heads(self, x_ND: Tensor, heads: int) -> Tensor:
        """(N, H·K) cells -> (B, H, T, K)."""
        x_BTHK = x_ND.view(self.sentences, self.longest, heads, x_ND.shape[1] // heads)
        # Where memory is read in the order of the result, products of small matrices have the bits of a layout's.
        return x_BTHK.transpose(1, 2).contiguous()

    def from_heads(self, x_BHTK: Tensor) -> Tensor:
        """(B, H, T, K) -> (N, H·K) cells."""
        return x_BHTK.transpose(1, 2).reshape(self.sentences * self.longest, -1)


class _Rearrange(torch.autograd.Function):
    """Rows of x in another order, with some rows of the result set to zero; the backward pass is the reverse gather.

    Autograd's own backward of a gather is a scatter-add, many times slower than a gather on a CPU.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, order: Tensor, back: Tensor, zeros: Tensor | None, zeros_back: Tensor | None
    ) -> Tensor:
        ctx.indices = order, back, zeros, zeros_back
        out = x.index_select(0, order)
        return out if zeros is None else out.index_fill_(0, zeros, 0.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        order, back, zeros, zeros_back = ctx.indices
        return _rearrange(gradient, back, order, zeros_back, zeros), None, None, None, None


_rearrange: Callable[..., Tensor] = _Rearrange.apply
