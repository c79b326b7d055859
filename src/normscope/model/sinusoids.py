"""Sinusoidal positions."""

# N = packed tokens, P = positions, D = width
import math

import torch
from torch import Tensor, nn

PAD = 1
_FIRST_POSITION = PAD + 1  # fairseq counts positions from the padding index; its numbers are what we compare with


class Sinusoids(nn.Module):
    """Sines and cosines of positions, to be added to embeddings (Vaswani et al. 2017, section 3.5).

    Raises ValueError for a width that has no room for both.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 2 or width < 4:
            raise ValueError(f"sinusoidal positions need an even width of at least 4, got width={width}")
        self.register_buffer("table_PD", sinusoids(256, width), persistent=False)

    def forward(self, positions_N: Tensor, longest: int) -> Tensor:
        """int64 positions from 0, all below `longest` -> (N, D)."""
        if longest > len(self.table_PD):
            # Grown by doubling, so that a long sentence costs once.
            self.table_PD = sinusoids(1 << longest.bit_length(), self.table_PD.shape[1]).to(self.table_PD)
        return self.table_PD.index_select(0, positions_N)

    table_PD: Tensor


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width): sines in the first half, cosines in the second, wavelengths from 2π to 10,000·2π."""
    half = width // 2
    # In float32 whatever the model's dtype, as fairseq does: the two agree to the last bit.
    frequency = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angle = torch.arange(_FIRST_POSITION, positions + _FIRST_POSITION, dtype=torch.float32)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], 1).to(torch.get_default_dtype())
