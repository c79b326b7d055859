"""The build of a stack's attention, and the packed tokens that it reads.

The stream holds real tokens only, (N, D); attention alone needs them as a grid of sentences.
Padding a batch of sentences and computing on the padding costs what the padding is worth (a sixth
of all work in length-bucketed translation batches), so every position-wise operation runs on the N
real tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..placement import StackShape
from ..settings.tables import check_choices

PositionEncoding = Literal["sinusoidal", "learned", "rotary", "alibi", "none"]
"""sinusoidal: Vaswani et al. 2017, section 3.5, added to the embedding; learned: Gehring et al.
2017, added likewise;
rotary: Su et al. 2021, arXiv:2104.09864, on queries and keys; alibi: Press et al. 2021,
arXiv:2108.12409, on scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Attention's heads, its norms, and how far a token sees. The defaults are those of Vaswani et
    al. 2017.
    """

    key_value_heads: int | Literal["as-heads"] = "as-heads"
    """Heads of keys and values, each read by as many heads of queries (Ainslie et al. 2023,
    arXiv:2305.13245).
    """
    head_width: int | Literal["as-width"] = "as-width"
    """Features of a head; as-width: the model's width over its heads."""
    query_key_norm: Literal["none", "per-head", "whole"] = "none"
    """A norm of queries and one of keys, each head by itself with one gain for all (Qwen 3) or over
    all heads together (OLMo 2). Where the placement's formula norms them itself, its norms stand
    instead."""
    soft_cap: float | Literal["none"] = "none"
    """c: scores become c · tanh(scores / c) before the softmax (Gemma 2 has 50)."""
    window_tokens: int | Literal["none"] = "none"
    """A token sees itself and the window_tokens - 1 before it; in an encoder also as many after
    it.
    """
    windowed_blocks: Literal["all", "odd"] = "all"
    """Blocks with the window: all of them, or the first, the third and so on (Gemma 2)."""
    rotary_base: float = 10_000.0
    """The base of rotary positions: the longest wavelength is nearly 2π times as many tokens."""
    rotary_share: float = 1.0
    """The share of a head's features that rotary positions rotate, the first ones (GPT-NeoX has
    0.25).
    """

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
            raise ValueError(
                f"attention.rotary_share must lie above 0 and not above 1, got {self.rotary_share}"
            )

    def window(self, block: int) -> int | None:
        """Returns how far a token sees in a block, counted from 1; None where it sees
        everything.
        """
        reaches_everywhere = self.window_tokens == "none" or (
            self.windowed_blocks == "odd" and block % 2 == 0
        )
        return None if reaches_everywhere else self.window_tokens  # type: ignore[return-value]


def with_heads(shape: StackShape, attention: AttentionConfig) -> StackShape:
    """Returns the stack with these heads of keys and values, and of this width.

    Raises ValueError where they do not go with its width and its heads.
    """
    key_value_heads = 0 if attention.key_value_heads == "as-heads" else attention.key_value_heads
    if key_value_heads and shape.heads % key_value_heads:
        raise ValueError(
            f"heads={shape.heads} must be a multiple of attention.key_value_heads={key_value_heads}"
        )
    head_width = 0 if attention.head_width == "as-width" else attention.head_width
    if not head_width and shape.width % shape.heads:
        raise ValueError(
            f"width={shape.width} must be a multiple of heads={shape.heads}, or "
            "attention.head_width a number"
        )
    # The sizes that a stack has anyway are not written out: two shapes of one stack are equal.
    return replace(
        shape,
        key_value_heads=0 if key_value_heads == shape.heads else key_value_heads,
        head_width=0 if head_width * shape.heads == shape.width else head_width,
    )


# N = real tokens of a batch, B = sentences, T = longest sentence, H = heads, K = width per head


class Layout:
    """The places of a batch's N packed tokens in a (B, T) grid of right-padded sentences."""

    def __init__(self, lengths_B: Tensor, device: torch.device | str = "cpu") -> None:
        """lengths_B: int64 on the CPU, real tokens per sentence, at least 1 each. Raises ValueError
        otherwise.
        """
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
        """Returns the mask of keys that are hidden from some queries, and whether each key is
        hidden from the queries before it.
        """
        # Sentences are padded on the right, so a causal mask already hides padding from every real
        # query.
        return (None, True) if causal else (self.keep_B11T, False)

    def pack(self, x_BT: Tensor) -> Tensor:
        """(B, T, ...) grid -> (N, ...) packed tokens."""
        return x_BT.reshape(-1, *x_BT.shape[2:]).index_select(0, self.cells_N)

    def unpack(self, x_N: Tensor, fill: float = 0.0) -> Tensor:
        """(N, ...) packed tokens -> (B, T, ...) grid, padding filled with `fill`."""
        grid = x_N.new_full((self.sentences * self.longest, *x_N.shape[1:]), fill)
        return grid.index_copy(0, self.cells_N, x_N).view(
            self.sentences, self.longest, *x_N.shape[1:]
        )

    def to_heads(self, x_ND: Tensor, heads: int) -> Tensor:
        """(N, H·K) packed tokens -> (B, H, T, K) grid with zeros in the padding."""
        if self.full:
            return _in_order(x_ND, self.sentences, self.longest, heads)
        to_grid, to_tokens, padding = self._head_rows(heads)
        rows = _rearrange(x_ND.reshape(self.tokens * heads, -1), to_grid, to_tokens, padding, None)
        return rows.view(self.sentences, heads, self.longest, -1)

    def from_heads(self, x_BHTK: Tensor) -> Tensor:
        """(B, H, T, K) grid -> (N, H·K) packed tokens."""
        if self.full:
            return x_BHTK.transpose(1, 2).reshape(self.tokens, -1)
        heads = x_BHTK.shape[1]
        to_grid, to_tokens, padding = self._head_rows(heads)
        rows = _rearrange(x_BHTK.reshape(-1, x_BHTK.shape[-1]), to_tokens, to_grid, None, padding)
        return rows.view(self.tokens, -1)

    def _head_rows(self, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the indices between rows (N, H) and (B, H, T): token row of each grid row, its
        inverse, and the grid's padding rows.
        """
        if heads not in self._rows:
            head = torch.arange(heads, device=self.device)
            sentence, position = self.cells_N // self.longest, self.positions_N
            to_tokens = (
                (sentence[:, None] * heads + head) * self.longest + position[:, None]
            ).flatten()
            to_grid = torch.zeros(
                self.sentences * heads * self.longest, dtype=torch.int64, device=self.device
            )
            to_grid[to_tokens] = torch.arange(self.tokens * heads, device=self.device)
            padding_BHT = ~self.keep_BT[:, None, :].expand(-1, heads, -1)
            self._rows[heads] = to_grid, to_tokens, padding_BHT.flatten().nonzero().squeeze(1)
        return self._rows[heads]


class PaddedLayout:
    """A (B, T) grid whose every cell is computed, padding too: nothing about it depends on values,
    so it compiles.

    Its packed tokens are the cells in order, N = B·T.
    """

    def __init__(self, sentences: int, longest: int, padding_BT: Tensor | None = None) -> None:
        """padding_BT: True where there is no token, anywhere in a sentence; None where there is one
        in every cell.
        """
        self.sentences = sentences
        self.longest = longest
        self.padding_BT = padding_BT

    @property
    def keep_B11T(self) -> Tensor | None:
        """True where a key may be looked at; None where nothing is padded."""
        return None if self.padding_BT is None else ~self.padding_BT[:, None, None, :]

    def visible(self, causal: bool) -> tuple[Tensor | None, bool]:
        """Returns the mask as a layout does. Padding before the first token, which would see
        nothing, sees itself: all stays finite.
        """
        keep = self.keep_B11T
        if keep is None or not causal:
            return keep, causal
        place_T = torch.arange(self.longest, device=keep.device)
        return keep & (place_T[:, None] >= place_T) | (place_T[:, None] == place_T), False

    def to_heads(self, x_ND: Tensor, heads: int) -> Tensor:
        """(N, H·K) cells -> (B, H, T, K)."""
        return _in_order(x_ND, self.sentences, self.longest, heads)

    def from_heads(self, x_BHTK: Tensor) -> Tensor:
        """(B, H, T, K) -> (N, H·K) cells."""
        return x_BHTK.transpose(1, 2).reshape(self.sentences * self.longest, -1)


def _in_order(x_ND: Tensor, sentences: int, longest: int, heads: int) -> Tensor:
    """(N, H·K) cells -> (B, H, T, K), where every cell is a token or counts as one."""
    x_BHTK = x_ND.reshape(sentences, longest, heads, x_ND.shape[1] // heads).transpose(1, 2)
    # Where memory is read in the order of the result, products of small matrices have the bits of a
    # gathered grid's; attention on a device reads any order.
    return x_BHTK if x_BHTK.is_cuda else x_BHTK.contiguous()


class _Rearrange(torch.autograd.Function):
    """Rows of x in another order, with some rows of the result set to zero; the backward pass is
    the reverse gather.

    Autograd's own backward of a gather is a scatter-add, many times slower than a gather on a CPU.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        order: Tensor,
        back: Tensor,
        zeros: Tensor | None,
        zeros_back: Tensor | None,
    ) -> Tensor:
        ctx.indices = order, back, zeros, zeros_back
        out = x.index_select(0, order)
        return out if zeros is None else out.index_fill_(0, zeros, 0.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        order, back, zeros, zeros_back = ctx.indices
        return _rearrange(gradient, back, order, zeros_back, zeros), None, None, None, None


_rearrange: Callable[..., Tensor] = _Rearrange.apply
