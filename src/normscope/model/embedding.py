"""Token embeddings of an encoder-decoder."""

# V = vocabulary, D = width, N = packed tokens
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from ..placement import Placement
from .initialisation import Scheme
from .sinusoids import PAD, Sinusoids
from .tables import Table


class Embedding(Table):
    """Rows of a (V, D) table, plus sinusoidal positions unless positions are told elsewhere.

    What becomes of the rows is the placement's to say (`input_rows`); most multiply them by √D (Vaswani et al. 2017,
    section 3.4).
    """

    role: ClassVar[str] = "embedding"

    def __init__(self, vocabulary: int, width: int, placement: Placement, *, sinusoidal: bool = True) -> None:
        super().__init__(vocabulary, width, placement)
        self.sinusoids = Sinusoids(width) if sinusoidal else None

    def forward(self, tokens_N: Tensor, positions_N: Tensor, longest: int) -> Tensor:
        """tokens_N: int64 ids; positions_N: int64 from 0, all below `longest`. Returns (N, D)."""
        rows: Tensor = self.placement.input_rows(functional.embedding(tokens_N, self.weight, padding_idx=PAD))
        return rows if self.sinusoids is None else rows + self.sinusoids(positions_N, longest)

    def draw(self, scheme: Scheme) -> None:
        scheme.embedding(self.weight, self.placement.embedding_gain())
        self.weight[PAD].zero_()
