"""Batches of sentence pairs under a budget of tokens.

B = sentences of a batch, S = longest source, T = longest target; both include EOS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import UserError
from ..batches import Batch, permutation
from .corpus import Split
from .vocabulary import EOS, PAD


def make_batches(
    source_lengths: NDArray[np.integer[Any]],
    target_lengths: NDArray[np.integer[Any]],
    *,
    max_tokens: int,
    seed: int,
) -> list[NDArray[np.int64]]:
    """Returns the sentence indices of each batch, every sentence in exactly one; shortest first.

    Lengths include EOS. A batch holds as many sentences of like length as keep (longest of either
    side x sentences) at or under `max_tokens`, fairseq's `--max-tokens`. Sentences are sorted by
    target, then source length; `seed` decides which of those with equal lengths meet. Raises
    UserError for a sentence that alone is over the budget.
    """
    longest = np.maximum(source_lengths, target_lengths)
    if len(longest) and longest.max() > max_tokens:
        worst = int(longest.argmax())
        raise UserError(
            f"sentence {worst} (counted from 0) has {longest[worst]} tokens, more than the "
            f"{max_tokens} of a batch; raise max_tokens, or prepare the corpus with shorter "
            "sentences"
        )
    # (seed, 0, 1): SeedSequence pads with zeros, so that (seed,) would give the bits of (seed,
    # epoch 0) again.
    order = np.lexsort((permutation(len(longest), seed, 0, 1), source_lengths, target_lengths))
    starts, width = [0], 0
    for place, length in enumerate(longest[order].tolist()):
        width = max(width, length)
        if width * (place + 1 - starts[-1]) > max_tokens:
            starts.append(place)
            width = length
    return [batch for batch in np.split(order, starts[1:]) if len(batch)]


@dataclass(frozen=True, kw_only=True, eq=False)
class TranslationBatch(Batch):
    """Padded sentence pairs, int64 throughout."""

    on_device = ("source_BS", "target_in_BT", "target_out_BT")

    source_BS: Tensor
    """Right-padded with PAD; each row ends with EOS."""
    target_in_BT: Tensor
    """The decoder's input: EOS, then the target without its EOS (fairseq's shift)."""
    target_out_BT: Tensor
    """The expected output: the target with its EOS."""
    source_lengths_B: Tensor
    """The lengths, on the CPU always, for masks and counts that must not wait for a device."""
    target_lengths_B: Tensor
    target_tokens: int
    """Target tokens that are not padding, EOS included."""


def collate(split: Split, indices: Sequence[int] | NDArray[np.int64]) -> TranslationBatch:
    """Returns the sentences at `indices`, in that order, as one batch. Raises IndexError
    outside.
    """
    source_BS, source_lengths_B = _padded([split.source[int(i)] for i in indices])
    target_BT, target_lengths_B = _padded([split.target[int(i)] for i in indices])
    shifted_BT = target_BT.roll(1, dims=1)
    shifted_BT[shifted_BT == EOS] = PAD  # each EOS stands one further right now, over padding
    shifted_BT[:, 0] = EOS
    return TranslationBatch(
        source_BS=source_BS,
        target_in_BT=shifted_BT,
        target_out_BT=target_BT,
        source_lengths_B=source_lengths_B,
        target_lengths_B=target_lengths_B,
        target_tokens=int(target_lengths_B.sum()),
    )


def _padded(rows: Sequence[NDArray[Any]]) -> tuple[Tensor, Tensor]:
    """Returns rows of unequal length as one int64 tensor (rows, longest), and their lengths
    (rows,).
    """
    lengths = [len(row) for row in rows]
    padded = torch.full((len(rows), max(lengths)), PAD, dtype=torch.int64)
    for row, ids, length in zip(padded, rows, lengths, strict=True):
        row[:length] = torch.from_numpy(ids.astype(np.int64))
    return padded, torch.tensor(lengths, dtype=torch.int64)
