"""Sentence pairs for next-sentence prediction, packed from documents as BERT packs them.

After `create_pretraining_data.py` of google-research/bert (Devlin et al. 2018, appendix A.2):
consecutive sentences of a document are gathered up to the length of a sequence (for a tenth of the
documents, up to a random shorter one) and cut in two at a random sentence; half of the time the
second part is replaced by sentences of another document, and those it leaves are gathered again.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from ..batches import StableDraw
from .corpus import DocumentSplit

SPECIAL_TOKENS_A_PAIR = 3
"""[CLS] A [SEP] B [SEP]."""
SHORT_SHARE = 0.1
_TRIES = 10
_DOCUMENTS_AT_ONCE = 2**12


def pack_pairs(
    split: DocumentSplit, *, sequence_length: int, seed: int, packings: int = 1
) -> NDArray[np.int64]:
    """Returns the pairs of a split (pairs, 5), a pure function of the arguments.

    A row has the begin and the end of the first stretch of tokens and of the second, each of one
    document and neither empty, and 1 where the second does not follow the first: BERT's label 1,
    "NotNext".

    sequence_length: tokens of the longest sequence, special ones included. packings: how many times
    the text is packed, each time with other random choices (BERT's `dupe_factor`). The split has 2
    documents at least, and a sequence room for two tokens beside the special ones.
    """
    packer = _Packer(split, sequence_length - SPECIAL_TOKENS_A_PAIR)
    rows = (
        pair
        for packing in range(packings)
        for number, begin, end in packer.documents()
        for pair in packer.document(
            number, begin, end, StableDraw(f"pairs {seed} {packing} {number}")
        )
    )
    return np.fromiter(chain.from_iterable(rows), dtype=np.int64).reshape(-1, 5)


@dataclass(frozen=True, slots=True)
class _Packer:
    """Reads of a split what it needs for a pair, a stretch at a time: single numbers of an array
    are slow to read.
    """

    split: DocumentSplit
    longest: int

    def documents(self) -> Iterator[tuple[int, int, int]]:
        """Number, first sentence and end of each document."""
        for begun in range(0, len(self.split), _DOCUMENTS_AT_ONCE):
            places = self.split.documents[begun : begun + _DOCUMENTS_AT_ONCE + 1].tolist()
            for number, (begin, end) in enumerate(pairwise(places), start=begun):
                yield number, begin, end

    def document(
        self, number: int, first: int, end: int, draw: StableDraw
    ) -> Iterator[tuple[int, ...]]:
        """The pairs that begin in one document, which has the sentences `first` to `end`."""
        target = 2 + draw.below(self.longest - 1) if draw.chance(SHORT_SHARE) else self.longest
        while first < end:
            # Where the sentences begin that are gathered, in tokens, and the end of the last.
            places = self._gathered(first, end, target)
            last = len(places) - 1
            middle = 1 + (draw.below(last - 1) if last > 1 else 0)
            is_random = middle == last or draw.chance(0.5)
            begin, cut = places[0], places[middle]
            second = (
                self._elsewhere(number, target - (cut - begin), draw)
                if is_random
                else (cut, places[last])
            )
            yield *_truncated(begin, cut, *second, longest=self.longest, draw=draw), int(is_random)
            # What a random second part took the place of is still to be used.
            first += middle if is_random else last

    def _elsewhere(self, number: int, wanted: int, draw: StableDraw) -> tuple[int, int]:
        """Sentences of another document from a random one on, as many as make `wanted` tokens or as
        there are.
        """
        documents = len(self.split)
        for _ in range(_TRIES):
            other = draw.below(documents)
            if other != number:
                break
        else:
            # BERT gives up here and takes the same document; with 2 documents that would be one
            # pair in 1,000.
            other = (number + 1) % documents
        begin, end = self.split.documents[other : other + 2].tolist()
        places = self._gathered(begin + draw.below(end - begin), end, wanted)
        return places[0], places[-1]

    def _gathered(self, first: int, end: int, wanted: int) -> list[int]:
        """Returns where the sentences from one on begin, and the end of the last: as many as make
        `wanted` tokens, or all to `end`.

        One at least.
        """
        # No sentence is empty, so that no more than `wanted` of them are needed.
        places: list[int] = self.split.sentences[
            first : min(end, first + max(1, wanted)) + 1
        ].tolist()
        return places[: bisect_left(places, places[0] + wanted, lo=1, hi=len(places) - 1) + 1]


def _truncated(
    a: int, a_end: int, b: int, b_end: int, *, longest: int, draw: StableDraw
) -> tuple[int, int, int, int]:
    """Takes tokens off a random end of the longer stretch until both fit; returns both
    stretches.
    """
    while (a_end - a) + (b_end - b) > longest:
        front = draw.chance(0.5)
        if a_end - a > b_end - b:
            a, a_end = (a + 1, a_end) if front else (a, a_end - 1)
        else:
            b, b_end = (b + 1, b_end) if front else (b, b_end - 1)
    return a, a_end, b, b_end
