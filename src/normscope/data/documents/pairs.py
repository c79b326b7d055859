"""Sentence pairs for next-sentence prediction, packed from documents as BERT packs them.

After `create_pretraining_data.py` of google-research/bert (Devlin et al. 2018, appendix A.2): consecutive sentences
of a document are gathered up to the length of a sequence (for a tenth of the documents, up to a random shorter one) and
cut in two at a random sentence; half of the time the second part is replaced by sentences of another document, and
those it leaves are gathered again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..draw import Draw
from .corpus import DocumentSplit

SPECIAL_TOKENS_A_PAIR = 3
"""[CLS] A [SEP] B [SEP]."""
SHORT_SHARE = 0.1
_TRIES = 10


class Pair(NamedTuple):
    """Two stretches of a split's tokens, each of one document, neither empty."""

    first_begin: int
    first_end: int
    second_begin: int
    second_end: int
    is_random: int
    """1 where the second does not follow the first: BERT's label 1, "NotNext"."""


@dataclass(frozen=True, eq=False)
class PackedPairs:
    """All pairs of a packing; row i of (pairs, 5) is a `Pair`."""

    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Pair:
        return Pair(*self.rows[i].tolist())

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence, special ones included."""
        begins, ends = self.rows[:, [0, 2]], self.rows[:, [1, 3]]
        lengths: NDArray[np.int64] = (ends - begins).sum(1) + SPECIAL_TOKENS_A_PAIR
        return lengths


def pack_pairs(split: DocumentSplit, *, sequence_length: int, seed: int, packings: int = 1) -> PackedPairs:
    """The pairs of a split, a pure function of the arguments.

    sequence_length: tokens of the longest sequence, special ones included. packings: how many times the text is
    packed, each time with other random choices (BERT's `dupe_factor`). Raises ValueError for fewer than 2 documents,
    and for a sequence too short for two tokens beside the special ones.
    """
    if len(split) < 2:
        raise ValueError(f"a random next sentence comes from another document, and there are {len(split)}")
    longest = sequence_length - SPECIAL_TOKENS_A_PAIR
    if longest < 2:
        raise ValueError(f"sequence_length must be at least {SPECIAL_TOKENS_A_PAIR + 2}, got {sequence_length}")
    # Lists: one number of an array at a time is slower than one of a list by an order of magnitude.
    packer = _Packer(split.sentences.tolist(), split.documents.tolist(), longest)
    rows = [
        pair
        for packing in range(packings)
        for document in range(len(split))
        for pair in packer.document(document, Draw(f"pairs {seed} {packing} {document}"))
    ]
    return PackedPairs(np.array(rows, dtype=np.int64).reshape(-1, len(Pair._fields)))


@dataclass(frozen=True, slots=True)
class _Packer:
    offsets: list[int]
    """Of sentences, in tokens."""
    documents: list[int]
    """Of documents, in sentences."""
    longest: int

    def document(self, number: int, draw: Draw) -> Iterator[Pair]:
        """The pairs that begin in one document."""
        end = self.documents[number + 1]
        target = 2 + draw.below(self.longest - 1) if draw.chance(SHORT_SHARE) else self.longest
        first = self.documents[number]
        while first < end:
            last = first + 1
            while last < end and self._tokens(first, last) < target:
                last += 1
            middle = first + 1 + (draw.below(last - first - 1) if last - first > 1 else 0)
            is_random = middle == last or draw.chance(0.5)
            second = (
                self._elsewhere(number, target - self._tokens(first, middle), draw) if is_random else (middle, last)
            )
            spans = (self.offsets[first], self.offsets[middle], *(self.offsets[sentence] for sentence in second))
            yield Pair(*_truncated(*spans, longest=self.longest, draw=draw), int(is_random))
            # What a random second part took the place of is still to be used.
            first = middle if is_random else last

    def _elsewhere(self, number: int, wanted: int, draw: Draw) -> tuple[int, int]:
        """Sentences of another document from a random one on, as many as make `wanted` tokens or as there are."""
        documents = len(self.documents) - 1
        for _ in range(_TRIES):
            other = draw.below(documents)
            if other != number:
                break
        else:
            # BERT gives up here and takes the same document; with 2 documents that would be one pair in 1,000.
            other = (number + 1) % documents
        end = self.documents[other + 1]
        first = self.documents[other] + draw.below(end - self.documents[other])
        last = first + 1
        while last < end and self._tokens(first, last) < wanted:
            last += 1
        return first, last

    def _tokens(self, first: int, last: int) -> int:
        return self.offsets[last] - self.offsets[first]


def _truncated(a: int, a_end: int, b: int, b_end: int, *, longest: int, draw: Draw) -> tuple[int, int, int, int]:
    """Both stretches without tokens off a random end of the longer one, until they fit."""
    while (a_end - a) + (b_end - b) > longest:
        front = draw.chance(0.5)
        if a_end - a > b_end - b:
            a, a_end = (a + 1, a_end) if front else (a, a_end - 1)
        else:
            b, b_end = (b + 1, b_end) if front else (b, b_end - 1)
    return a, a_end, b, b_end
