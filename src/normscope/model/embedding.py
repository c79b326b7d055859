"""Token embeddings with sinusoidal positions."""

# V = vocabulary, D = width, N = packed tokens
import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..placement import Placement
from .initialisation import Drawable, Scheme

PAD = 1
_FIRST_POSITION = PAD + 1  # fairseq counts positions from the padding index; its numbers are what we compare with


class Embedding(Drawable):
    """Rows of a (V, D) table plus sinusoidal positions (Vaswani et al. 2017, section 3.5).

    What becomes of the rows is the placement's to say (`input_rows`); most multiply them by √D (section 3.4 there).
    """

    role: ClassVar[str] = "embedding"

    def __init__(self, vocabulary: int, width: int, placement: Placement) -> None:
        super().__init__()
        if width % 2 or width < 4:
            raise ValueError(f"sinusoidal positions need an even width of at least 4, got width={width}")
        self.placement = placement
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        self.register_buffer("sinusoids", sinusoids(256, width), persistent=False)

    def forward(self, tokens_N: Tensor, positions_N: Tensor, longest: int) -> Tensor:
        """tokens_N: int64 ids; positions_N: int64 from 0, all below `longest`. Returns (N, D)."""
        if longest > self.sinusoids.shape[0]:
            # Grown by doubling, so that a long sentence costs once.
            self.sinusoids = sinusoids(1 << longest.bit_length(), self.weight.shape[1]).to(self.sinusoids)
        rows = self.placement.input_rows(functional.embedding(tokens_N, self.weight, padding_idx=PAD))
        embedded: Tensor = rows + self.sinusoids.index_select(0, positions_N)
        return embedded

    def draw(self, scheme: Scheme) -> None:
        scheme.embedding(self.weight, self.placement.embedding_gain())
        self.weight[PAD].zero_()

    def unit_vectors(self) -> Iterator[tuple[Tensor, int]]:
        if "embedding" in self.placement.unit_vectors:
            yield self.weight, self.placement.unit_vectors["embedding"]

    sinusoids: Tensor


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width): sines in the first half, cosines in the second, wavelengths from 2π to 10,000·2π."""
    half = width // 2
    # In float32 whatever the model's dtype, as fairseq does: the two agree to the last bit.
    frequency = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angle = torch.arange(_FIRST_POSITION, positions + _FIRST_POSITION, dtype=torch.float32)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], 1).to(torch.get_default_dtype())
