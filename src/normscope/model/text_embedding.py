"""Token embeddings of models of text: with positions, and segments where sentences come in pairs."""

# V = vocabulary, P = positions, S = segments, D = width, N = packed tokens
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..placement import Placement
from .attention import PositionEncoding
from .initialisation import Scheme, draw_bert
from .sinusoids import Sinusoids
from .tables import Table


class TextEmbedding(Table):
    """Rows of a (V, D), a (P, D) and, with segments, an (S, D) table, added up (Devlin et al. 2018, figure 2); then a
    norm, where there is one.

    BERT has the norm, whatever the placement of its blocks; GPT-2 has none. Neither multiplies by √D; Gemma multiplies
    the tokens' rows (`scale`). With sinusoidal positions their waves stand in for the second table, and with positions
    that attention tells, nothing does.
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
        self.sinusoids = Sinusoids(width) if position_encoding == "sinusoidal" else None
        self.segments = nn.Parameter(torch.empty(segments, width)) if segments else None
        self.norm = nn.Identity() if norm is None else norm

    def tables(self) -> Iterator[nn.Parameter]:
        """In the order in which they are drawn."""
        yield from (table for table in (self.weight, self.positions, self.segments) if table is not None)

    def draw(self, scheme: Scheme) -> None:
        for table_VD in self.tables():
            draw_bert(table_VD, self.placement.embedding_gain() if table_VD is self.weight else 1.0)

    def forward(self, tokens_N: Tensor, positions_N: Tensor, segments_N: Tensor | None = None) -> Tensor:
        """int64 ids of tokens, positions from 0 and segments from 0 -> (N, D). Segments left out are all 0."""
        embedded = self.placement.table_rows(functional.embedding(tokens_N, self.weight))
        if self.scale != 1.0:
            embedded = embedded * self.scale
        if self.positions is not None:
            embedded = embedded + functional.embedding(positions_N, self.positions)
        if self.sinusoids is not None:
            embedded = embedded + self.sinusoids(positions_N, int(positions_N.max()) + 1)
        if self.segments is not None:
            segments_N = torch.zeros_like(tokens_N) if segments_N is None else segments_N
            embedded = embedded + functional.embedding(segments_N, self.segments)
        return self.norm(embedded)  # type: ignore[no-any-return]
