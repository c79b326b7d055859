"""Rotary positions: queries and keys are turned by angles that grow with the position (Su et al. 2021)."""

# P = positions, T = longest sentence, K = width per head, R = rotated features of a head
import torch
from torch import Tensor, nn


def rotated_features(head_width: int, share: float) -> int:
    """How many of a head's features are turned. Raises ValueError where they do not come in pairs."""
    rotated = int(head_width * share)
    if rotated % 2 or not rotated:
        raise ValueError(
            f"rotary positions turn pairs of features, and {share:g} of a head's {head_width} are {rotated}; "
            "give the heads another width, or attention.rotary_share another value"
        )
    return rotated


class Rotary(nn.Module):
    """Turns feature i of the first R together with feature i + R/2 by position · base^(-2i/R).

    The halves are paired as in Llama and GPT-NeoX; Su et al. 2021, eq. 34, pair neighbours, which is another order of
    the same features. Raises ValueError for an odd number of rotated features.
    """

    def __init__(self, head_width: int, base: float, share: float) -> None:
        super().__init__()
        self.rotated, self.base = rotated_features(head_width, share), base
        cosines, sines = self._tables(64)
        self.register_buffer("cosines_PR", cosines, persistent=False)
        self.register_buffer("sines_PR", sines, persistent=False)

    def forward(self, x: Tensor, first: int, length: int) -> Tensor:
        """(B, H, T, K) at positions first to first + length - 1; with a length of 1, all T at the one."""
        needed = first + length
        if needed > len(self.cosines_PR):
            # Grown by doubling, so that a long sentence costs once.
            tables = self._tables(1 << needed.bit_length())
            self.cosines_PR, self.sines_PR = (table.to(self.cosines_PR) for table in tables)
        places = slice(first, needed)
        turning, kept = x[..., : self.rotated], x[..., self.rotated :]
        low, high = turning.chunk(2, -1)
        cosines, sines = self.cosines_PR[places].to(x.dtype), self.sines_PR[places].to(x.dtype)
        turned = turning * cosines + torch.cat([-high, low], -1) * sines
        return torch.cat([turned, kept], -1) if kept.shape[-1] else turned

    def _tables(self, positions: int) -> tuple[Tensor, Tensor]:
        # In float32 whatever the model's dtype, as transformers has them: the two agree to the last bit.
        pairs = torch.arange(0, self.rotated, 2, dtype=torch.int64).to(torch.float32)
        frequency = 1.0 / self.base ** (pairs / self.rotated)
        angle = torch.arange(positions, dtype=torch.float32)[:, None] * frequency
        both = torch.cat([angle, angle], -1)
        dtype = torch.get_default_dtype()
        return both.cos().to(dtype), both.sin().to(dtype)

    cosines_PR: Tensor
    sines_PR: Tensor
