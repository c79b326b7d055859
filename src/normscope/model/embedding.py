"""Embeddings of tokens with their positions, and the tables with a row a token that output
projections share.
"""

import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..placement import Placement
from .initialisation import Drawable, Scheme, draw_bert, fill
from .layout import PositionEncoding

# V = vocabulary, D = width


class Table(Drawable):
    """A (V, D) table, whose rows the placement may keep at length 1.

    On its own its rows meet the last hidden states, and are drawn as the embedding of a model of
    text is.
    """

    role: ClassVar[str] = "head"

    def __init__(self, vocabulary: int, width: int, placement: Placement) -> None:
        super().__init__()
        self.placement = placement
        self.weight = nn.Parameter(torch.empty(vocabulary, width))

    def draw(self, scheme: Scheme) -> None:
        draw_bert(self.weight, self.placement.embedding_gain())

    def unit_vectors(self) -> Iterator[tuple[Tensor, int]]:
        if "embedding" in self.placement.unit_vectors:
            yield self.weight, self.placement.unit_vectors["embedding"]


# N = packed tokens, P = positions, D = width


PAD = 1
# fairseq counts positions from the padding index; its numbers are what we compare with.
_FIRST_POSITION = PAD + 1


class _Sinusoids(nn.Module):
    """Sines and cosines of positions, to be added to embeddings (Vaswani et al. 2017, section 3.5).

    Raises ValueError for a width that has no room for both.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 2 or width < 4:
            raise ValueError(
                f"sinusoidal positions need an even width of at least 4, got width={width}"
            )
        self.register_buffer("table_PD", sinusoids(256, width), persistent=False)

    def forward(self, positions_N: Tensor, longest: int) -> Tensor:
        """int64 positions from 0, all below `longest` -> (N, D)."""
        if longest > len(self.table_PD):
            # Grown by doubling, so that a long sentence costs once.
            self.table_PD = sinusoids(1 << longest.bit_length(), self.table_PD.shape[1]).to(
                self.table_PD
            )
        return self.table_PD.index_select(0, positions_N)

    table_PD: Tensor


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width): sines in the first half, cosines in the second, wavelengths from 2π to
    10,000·2π.
    """
    half = width // 2
    # In float32 whatever the model's dtype, as fairseq does: the two agree to the last bit.
    frequency = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angle = (
        torch.arange(_FIRST_POSITION, positions + _FIRST_POSITION, dtype=torch.float32)[:, None]
        * frequency
    )
    return torch.cat([angle.sin(), angle.cos()], 1).to(torch.get_default_dtype())


# V = vocabulary, D = width, N = packed tokens


class Embedding(Table):
    """Rows of a (V, D) table, plus sinusoidal positions unless positions are told elsewhere.

    What becomes of the rows is the placement's to say (`input_rows`); most multiply them by √D
    (Vaswani et al. 2017, section 3.4).
    """

    role: ClassVar[str] = "embedding"

    def __init__(
        self, vocabulary: int, width: int, placement: Placement, *, sinusoidal: bool = True
    ) -> None:
        super().__init__(vocabulary, width, placement)
        self.sinusoids = _Sinusoids(width) if sinusoidal else None

    def forward(self, tokens_N: Tensor, positions_N: Tensor, longest: int) -> Tensor:
        """tokens_N: int64 ids; positions_N: int64 from 0, all below `longest`. Returns (N, D)."""
        rows: Tensor = self.placement.input_rows(
            nn.functional.embedding(tokens_N, self.weight, padding_idx=PAD)
        )
        return rows if self.sinusoids is None else rows + self.sinusoids(positions_N, longest)

    def draw(self, scheme: Scheme) -> None:
        fill(self.weight, scheme.embedding, self.placement.embedding_gain())
        self.weight[PAD].zero_()


# V = vocabulary, P = positions, S = segments, D = width, N = packed tokens


class TextEmbedding(Table):
    """Rows of a (V, D), a (P, D) and, with segments, an (S, D) table, added up (Devlin et al. 2018,
    figure 2); then a norm, where there is one.

    BERT has the norm, whatever the placement of its blocks; GPT-2 has none. Neither multiplies by
    √D; Gemma multiplies the tokens' rows (`scale`). With sinusoidal positions their waves stand in
    for the second table, and with positions that attention tells, nothing does.
    """

    role: ClassVar[str] = "embedding"

    def __init__(
        self,
        vocabulary: int,
        width: int,
        placement: Placement,
        *,
        positions: int,
        position_encoding: PositionEncoding = "learned",
        segments: int = 0,
        norm: nn.Module | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__(vocabulary, width, placement)
        self.scale = scale
        learned = position_encoding == "learned"
        self.positions = nn.Parameter(torch.empty(positions, width)) if learned else None
        self.sinusoids = _Sinusoids(width) if position_encoding == "sinusoidal" else None
        self.segments = nn.Parameter(torch.empty(segments, width)) if segments else None
        self.norm = nn.Identity() if norm is None else norm

    def tables(self) -> Iterator[nn.Parameter]:
        """Yields the tables in the order in which they are drawn."""
        yield from (
            table for table in (self.weight, self.positions, self.segments) if table is not None
        )

    def draw(self, scheme: Scheme) -> None:
        for table_VD in self.tables():
            draw_bert(table_VD, self.placement.embedding_gain() if table_VD is self.weight else 1.0)

    def forward(
        self, tokens_N: Tensor, positions_N: Tensor, segments_N: Tensor | None = None
    ) -> Tensor:
        """int64 ids of tokens, positions from 0 and segments from 0 -> (N, D). Segments left out
        are all 0.
        """
        embedded = self.placement.table_rows(nn.functional.embedding(tokens_N, self.weight))
        if self.scale != 1.0:
            embedded = embedded * self.scale
        if self.positions is not None:
            embedded = embedded + nn.functional.embedding(positions_N, self.positions)
        if self.sinusoids is not None:
            embedded = embedded + self.sinusoids(positions_N, int(positions_N.max()) + 1)
        if self.segments is not None:
            segments_N = torch.zeros_like(tokens_N) if segments_N is None else segments_N
            embedded = embedded + nn.functional.embedding(segments_N, self.segments)
        return self.norm(embedded)  # type: ignore[no-any-return]
