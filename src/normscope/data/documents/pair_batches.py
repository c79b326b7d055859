"""Batches of masked sentence pairs: [CLS] A [SEP] B [SEP]."""

# N = packed tokens, M = masked tokens, B = sequences
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..moving import Batch
from .corpus import DocumentSplit
from .masking import Masker
from .pairs import PackedPairs
from .tokeniser import CLS, SEP, TextTokeniser


@dataclass(frozen=True, kw_only=True, eq=False)
class PairBatch(Batch):
    """Packed sequences, end to end without padding; int64 throughout."""

    on_device = ("tokens_N", "segments_N", "masked_M", "targets_M", "is_random_B")

    tokens_N: Tensor
    segments_N: Tensor
    """0 for [CLS] A [SEP], 1 for B [SEP]."""
    lengths_B: Tensor
    """On the CPU always, for masks and counts that must not wait for a device."""
    masked_M: Tensor
    """Where in the packed tokens a token is to be predicted."""
    targets_M: Tensor
    is_random_B: Tensor
    """1 where B does not follow A."""


def sequence(
    first: NDArray[np.int64], second: NDArray[np.int64] | None, tokeniser: TextTokeniser
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token and segment ids, (T,) each, of [CLS] first [SEP], and second [SEP] where there is one."""
    cls, sep = tokeniser.ids[CLS], tokeniser.ids[SEP]
    parts = [np.array([cls]), first, np.array([sep])]
    head = len(first) + 2
    if second is not None:
        parts += [second, np.array([sep])]
    tokens = np.concatenate(parts).astype(np.int64)
    return tokens, (np.arange(len(tokens)) >= head).astype(np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairSource:
    """Sequences of a packing by their index, masked by (seed, epoch, index)."""

    split: DocumentSplit
    pairs: PackedPairs
    tokeniser: TextTokeniser
    masker: Masker
    seed: int

    def batch(self, indices: Sequence[int], *, epoch: int) -> PairBatch:
        """The sequences of these indices, in that order, as one batch. Raises ValueError for none."""
        if len(indices) == 0:
            raise ValueError("no sequences; a batch needs at least one")
        tokens, segments, masked, targets, random = [], [], [], [], []
        begun = 0
        for index in indices:
            pair = self.pairs[index]
            first = self.split.tokens[pair.first_begin : pair.first_end]
            second = self.split.tokens[pair.second_begin : pair.second_end]
            tokens_T, segments_T = sequence(first, second, self.tokeniser)
            one = self.masker.mask(tokens_T, seed=self.seed, epoch=epoch, index=int(index))
            tokens.append(one.tokens_T)
            segments.append(segments_T)
            masked.append(one.positions_M + begun)
            targets.append(one.targets_M)
            random.append(pair.is_random)
            begun += len(tokens_T)
        return PairBatch(
            tokens_N=torch.from_numpy(np.concatenate(tokens)),
            segments_N=torch.from_numpy(np.concatenate(segments)),
            lengths_B=torch.tensor([len(row) for row in tokens]),
            masked_M=torch.from_numpy(np.concatenate(masked)),
            targets_M=torch.from_numpy(np.concatenate(targets)),
            is_random_B=torch.tensor(random),
        )
