"""What theory needs to know of batches of real text: lengths, and how often entries repeat."""

# B = sentences, S = longest source, T = longest target
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from normscope.data.parallel.batches import TranslationBatch
from normscope.model import ModelConfig
from normscope.theory.predict import ModelSetting
from normscope.theory.settings import RepeatedTokens

_Ids = NDArray[np.int64]


def setting_of(
    batches: Sequence[TranslationBatch], model: ModelConfig, *, vocabulary: int, label_smoothing: float
) -> ModelSetting:
    """The prediction's setting for the mean loss over all target tokens of these batches.

    vocabulary: rows of the output projection. Sentences are taken to be of their mean length.
    """
    sources = [row for batch in batches for row in _rows(batch.source_BS, batch.source_lengths_B)]
    read = [row for batch in batches for row in _rows(batch.target_in_BT, batch.target_lengths_B)]
    asked = [row for batch in batches for row in _rows(batch.target_out_BT, batch.target_lengths_B)]
    source, target, next_read = repeats(sources, sources), repeats(asked, asked), repeats(read, asked)
    return ModelSetting(
        stack="encoder-decoder",
        blocks=model.decoder_blocks,
        width=model.width,
        ffn_width=model.ffn_width,
        heads=model.heads,
        tokens=round(np.mean([len(row) for row in asked])),
        source_tokens=round(np.mean([len(row) for row in sources])),
        sequences=len(asked),
        vocabulary=vocabulary,
        setting="paper",
        dropout=model.dropout,
        label_smoothing=label_smoothing,
        source=RepeatedTokens(same_within=source.within, same_apart=source.apart),
        target=RepeatedTokens(
            same_within=target.within,
            same_apart=target.apart,
            asked_within=next_read.within,
            asked_apart=next_read.apart,
        ),
    )


@dataclass(frozen=True, slots=True)
class Repeats:
    """Shares of pairs of places that hold the same entry: two places of one sentence, and of two."""

    within: float
    apart: float


def repeats(firsts: Sequence[_Ids], seconds: Sequence[_Ids]) -> Repeats:
    """Of the same sentences twice: with what stands at one place of a pair, and at the other. 0 where there is no pair.

    A place and itself are no pair. Raises ValueError without sentences, or where the lengths differ.
    """
    if not firsts:
        raise ValueError("no sentences to count repeats in")
    size = 1 + max(int(ids.max()) for ids in (*firsts, *seconds))

    def meetings(first: _Ids, second: _Ids) -> int:
        return int(np.bincount(first, minlength=size) @ np.bincount(second, minlength=size))

    sentences = list(zip(firsts, seconds, strict=True))
    at_home = sum(int((first == second).sum()) for first, second in sentences)
    own = sum(meetings(first, second) for first, second in sentences)
    every = meetings(np.concatenate(firsts), np.concatenate(seconds))
    places = sum(map(len, firsts))
    own_places = sum(len(first) ** 2 for first in firsts)
    own_pairs, far_pairs = own_places - places, places**2 - own_places
    return Repeats((own - at_home) / own_pairs if own_pairs else 0.0, (every - own) / far_pairs if far_pairs else 0.0)


def _rows(ids_BT: Tensor, lengths_B: Tensor) -> list[_Ids]:
    """The real tokens of each sentence."""
    return [row[:length].cpu().numpy() for row, length in zip(ids_BT, lengths_B.tolist(), strict=True)]
