"""Text for decoder-only language models: documents end to end, cut into stretches of equal length."""

# B = sequences, N = packed tokens
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batches import Batch
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
class JoinedDocuments:
    """The tokens of a split with the end of documents before the first and behind each; none of it is in memory.

    Document k begins at token `sentences[documents[k]]` of the split, and one more than k ends are before it.
    """

    split: DocumentSplit
    end: int

    def __len__(self) -> int:
        return len(self.split.tokens) + len(self.split) + 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """As int64 a large corpus would take four times the memory."""
        return self.split.tokens.dtype

    def __getitem__(self, places: slice) -> NDArray[Any]:
        """A copy of a stretch. Raises ValueError for steps other than 1."""
        begin, end, step = places.indices(len(self))
        if step != 1:
            raise ValueError(f"stretches have a step of 1, got {step}")
        parts = [np.empty(0, dtype=self.dtype)]
        number = self._document_at(begin)
        while begin < end:
            # What is before the first document is an end of documents alone, as if a document stood before it.
            until = min(self._begin(number + 1), end)
            closes = until == self._begin(number + 1)
            parts.append(self.split.tokens[begin - number - 1 : until - number - 1 - closes])
            parts.append(np.full(int(closes), self.end, dtype=self.dtype))
            begin, number = until, number + 1
        return np.concatenate(parts)

    def _begin(self, number: int) -> int:
        """The place of the first token of a document; of -1, the place before them all."""
        return int(self.split.sentences[int(self.split.documents[number])]) + number + 1 if number >= 0 else 0

    def _document_at(self, place: int) -> int:
        """The number of the document with that token or the end behind it; -1 for the end before them all."""
        # A search by halves in the files: where all documents begin would take 8 bytes of memory for each.
        low, high = -1, len(self.split)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._begin(middle) <= place else (low, middle)
        return low


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretch i reads text[i * length : (i + 1) * length] and tells each following token."""

    text: JoinedDocuments
    length: int

    @classmethod
    def of(cls, split: DocumentSplit, *, length: int, end: int) -> Self:
        """The documents in order, `end` (an id) before the first and behind each, so that every token is a target once.

        Raises ValueError for a length below 1."""
        if length < 1:
            raise ValueError(f"a stretch has at least 1 token, got {length}")
        return cls(JoinedDocuments(split, end), length)

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
