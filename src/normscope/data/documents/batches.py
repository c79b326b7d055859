"""Batches of documents: packed stretches for decoders, pairs of stretches for encoders."""

# B = sequences, N = packed tokens, T = tokens of a sequence, M = masked tokens

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batches import Batch, raw_bits
from .corpus import DocumentSplit
from .tokeniser import CLS, SEP, TextTokeniser


@dataclass(frozen=True, kw_only=True, eq=False)
class StretchBatch(Batch):
    """Packed stretches, end to end; int64 throughout."""

    on_device = ("tokens_N", "targets_N")

    tokens_N: Tensor
    targets_N: Tensor
    """The token that follows each."""
    lengths_B: Tensor
    """The lengths, on the CPU always."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Stretches:
    """A split's documents in order, with their end before the first and behind each; none of it is
    in memory.

    Stretch i reads tokens i * length to (i + 1) * length of that text and tells each following
    token, so that every token is told once. Document k begins at token `sentences[documents[k]]` of
    the split, and one more than k ends are before it.
    """

    split: DocumentSplit
    length: int
    end: int
    """The id that stands for the end of a document."""

    def __len__(self) -> int:
        """The last may be shorter than the others."""
        return -(-self.targets // self.length)

    @property
    def targets(self) -> int:
        """Target tokens in all, the ends of documents included."""
        return len(self.split.tokens) + len(self.split)

    def batch(self, indices: Sequence[int]) -> StretchBatch:
        """These stretches, in that order."""
        rows = [
            self._text(i * self.length, (i + 1) * self.length + 1).astype(np.int64) for i in indices
        ]
        return StretchBatch(
            tokens_N=torch.from_numpy(np.concatenate([row[:-1] for row in rows])),
            targets_N=torch.from_numpy(np.concatenate([row[1:] for row in rows])),
            lengths_B=torch.tensor([len(row) - 1 for row in rows]),
        )

    def _text(self, begin: int, end: int) -> NDArray[Any]:
        """Returns the tokens from one place to before another, or to its end, in the split's own
        type.
        """
        parts, end = [], min(end, self.targets + 1)
        number = self._document_at(begin)
        while begin < end:
            # What is before the first document is an end of documents alone, as if a document stood
            # before it.
            until = min(self._begin(number + 1), end)
            closes = until == self._begin(number + 1)
            parts.append(self.split.tokens[begin - number - 1 : until - number - 1 - closes])
            parts.append(np.full(int(closes), self.end, dtype=self.split.tokens.dtype))
            begin, number = until, number + 1
        return np.concatenate(parts)

    def _begin(self, number: int) -> int:
        """Returns the place of the first token of a document; of -1, the place before them all."""
        return (
            int(self.split.sentences[int(self.split.documents[number])]) + number + 1
            if number >= 0
            else 0
        )

    def _document_at(self, place: int) -> int:
        """Returns the number of the document with that token or the end behind it; -1 for the end
        before them all.
        """
        # A search by halves in the files: where all documents begin would take 8 bytes of memory
        # for each.
        low, high = -1, len(self.split)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._begin(middle) <= place else (low, middle)
        return low


_MASKS = 3
"""Keeps these random numbers apart from those of other uses of the same seed."""
_MASK_SHARE, _RANDOM_SHARE = 0.8, 0.1
"""The shares of the chosen tokens that become [MASK], or a random token; the rest stay (Devlin et
al. 2018, section 3.1, task 1).
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Masker:
    """Hides tokens of sequences over one vocabulary."""

    masked_share: float
    """The share of a sequence's tokens that is chosen, special ones counted but never chosen; at
    least one token.
    """
    whole_words: bool
    """Hide whole words, not single tokens."""
    mask_id: int
    special_ids: frozenset[int]
    """Never masked."""
    regular_ids: NDArray[np.int64]
    """The ids from which random tokens are drawn."""
    begins_word_V: NDArray[np.bool_]

    def mask(
        self, tokens_T: NDArray[np.int64], *, seed: int, epoch: int, index: int
    ) -> tuple[NDArray[np.int64], ...]:
        """Returns the sequence with tokens masked, their positions in ascending order, and what
        stood there (T, M, M).

        The same arguments mask the same ones in every process. index: the sequence's number in its
        packing.
        """
        length = len(tokens_T)
        bits = raw_bits(3 * length, seed, epoch, index, _MASKS)
        order = bits[:length]
        how = bits[length : 2 * length]
        which = bits[2 * length :]
        maskable = np.flatnonzero(~np.isin(tokens_T, list(self.special_ids)))
        wanted = min(max(1, round(length * self.masked_share)), len(maskable))
        shuffled = maskable[np.argsort(order[maskable], kind="stable")]
        chosen = (
            self._words(tokens_T, maskable, shuffled, wanted)
            if self.whole_words
            else shuffled[:wanted]
        )
        positions = np.sort(chosen)
        targets, masked = tokens_T[positions], tokens_T.copy()
        share = _uniform(how[positions])
        random = self.regular_ids[
            (_uniform(which[positions]) * len(self.regular_ids)).astype(np.int64)
        ]
        becomes_mask = share < _MASK_SHARE
        becomes_random = ~becomes_mask & (share < _MASK_SHARE + _RANDOM_SHARE)
        masked[positions] = np.where(
            becomes_mask, self.mask_id, np.where(becomes_random, random, targets)
        )
        return masked, positions, targets

    def _words(
        self,
        tokens_T: NDArray[np.int64],
        maskable: NDArray[np.int64],
        shuffled: NDArray[np.int64],
        wanted: int,
    ) -> NDArray[np.int64]:
        """Whole words in random order, passing over one that would make it more than `wanted`
        tokens.

        Where every word is longer than that, the first token drawn alone: a sequence always has
        something to tell.
        """
        # A word begins at its mark, and anew behind a special token: a sentence cut short may begin
        # inside one.
        begins = self.begins_word_V[tokens_T[maskable]] | (np.diff(maskable, prepend=-2) > 1)
        word_of = dict(zip(maskable.tolist(), np.cumsum(begins).tolist(), strict=True))
        words: dict[int, list[int]] = {}
        for position, word in word_of.items():
            words.setdefault(word, []).append(position)
        chosen: list[int] = []
        for word in dict.fromkeys(word_of[position] for position in shuffled.tolist()):
            if len(chosen) + len(words[word]) <= wanted:
                chosen += words[word]
        return np.array(chosen or shuffled[:1].tolist(), dtype=np.int64)


def _uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Returns numbers in [0, 1) from the upper 53 bits, as `random.random` makes its numbers."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True, kw_only=True, eq=False)
class PairBatch(Batch):
    """Packed sequences, end to end without padding; int64 throughout."""

    on_device = ("tokens_N", "segments_N", "masked_M", "targets_M", "is_random_B")

    tokens_N: Tensor
    segments_N: Tensor
    """0 for [CLS] A [SEP], 1 for B [SEP]."""
    lengths_B: Tensor
    """The lengths, on the CPU always, for masks and counts that must not wait for a device."""
    masked_M: Tensor
    """The places in the packed tokens where a token is to be predicted."""
    targets_M: Tensor
    is_random_B: Tensor
    """1 where B does not follow A."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PairSource:
    """Sequences of a packing by their index, masked by (seed, epoch, index)."""

    split: DocumentSplit
    pairs: NDArray[np.int64]
    """The pairs as `pack_pairs` returns them."""
    tokeniser: TextTokeniser
    masker: Masker
    seed: int

    def batch(self, indices: Sequence[int], *, epoch: int) -> PairBatch:
        """Returns the sequences of these indices, in that order, as one batch."""
        tokens = []
        segments = []
        masked = []
        targets = []
        random = []
        cls, sep = self.tokeniser.ids[CLS], self.tokeniser.ids[SEP]
        begun = 0
        for index in indices:
            first_begin, first_end, second_begin, second_end, is_random = self.pairs[index].tolist()
            first, second = (
                self.split.tokens[first_begin:first_end],
                self.split.tokens[second_begin:second_end],
            )
            tokens_T = np.concatenate([[cls], first, [sep], second, [sep]]).astype(np.int64)
            masked_T, positions_M, targets_M = self.masker.mask(
                tokens_T, seed=self.seed, epoch=epoch, index=int(index)
            )
            tokens.append(masked_T)
            segments.append(np.arange(len(tokens_T)) >= len(first) + 2)
            masked.append(positions_M + begun)
            targets.append(targets_M)
            random.append(is_random)
            begun += len(tokens_T)
        return PairBatch(
            tokens_N=torch.from_numpy(np.concatenate(tokens)),
            segments_N=torch.from_numpy(np.concatenate(segments).astype(np.int64)),
            lengths_B=torch.tensor([len(row) for row in tokens]),
            masked_M=torch.from_numpy(np.concatenate(masked)),
            targets_M=torch.from_numpy(np.concatenate(targets)),
            is_random_B=torch.tensor(random),
        )
