"""Text for decoder-only language models: documents end to end, cut into stretches of equal length."""

# B = sequences, N = packed tokens
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..moving import Batch
from .corpus import DocumentSplit


@dataclass(frozen=True, kw_only=True, eq=False)
class StretchBatch(Batch):
    """Packed stretches, end to end; int64 throughout."""

    on_device = ("tokens_N", "targets_N")

    tokens_N: Tensor
    targets_N: Tensor
    """The token that follows each."""
    lengths_B: Tensor
    """On the CPU always."""


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretch i reads text[i * length : (i + 1) * length] and tells each following token."""

    text: NDArray[Any]
    """In the corpus' own dtype: as int64 a large one would take four times the memory."""
    length: int

    @classmethod
    def of(cls, split: DocumentSplit, *, length: int, end: int) -> Self:
        """The documents in order, `end` (an id) before the first and behind each, so that every token is a target once.

        Raises ValueError for a length below 1."""
        if length < 1:
            raise ValueError(f"a stretch has at least 1 token, got {length}")
        ends = split.sentences[split.documents[1:]]
        return cls(np.insert(split.tokens, [0, *ends.tolist()], end), length)

    def __len__(self) -> int:
        """The last may be shorter than the others."""
        return -(-(len(self.text) - 1) // self.length)

    @property
    def targets(self) -> int:
        """Target tokens in all, the ends of documents included."""
        return len(self.text) - 1

    def targets_of(self, indices: Sequence[int]) -> int:
        """Target tokens of these stretches."""
        return sum(min(self.length, self.targets - index * self.length) for index in indices)

    def batch(self, indices: Sequence[int]) -> StretchBatch:
        """These stretches, in that order. Raises ValueError for none, IndexError outside."""
        if len(indices) == 0:
            raise ValueError("no stretches; a batch needs at least one")
        if min(indices) < 0 or max(indices) >= len(self):
            raise IndexError(f"stretches {list(indices)} of {len(self)}")
        rows = [self.text[i * self.length : (i + 1) * self.length + 1].astype(np.int64) for i in indices]
        return StretchBatch(
            tokens_N=torch.from_numpy(np.concatenate([row[:-1] for row in rows])),
            targets_N=torch.from_numpy(np.concatenate([row[1:] for row in rows])),
            lengths_B=torch.tensor([len(row) - 1 for row in rows]),
        )
