"""What theory says of figure 3's gradients, before any model is built."""

# B = sentences, T = places of the longest, V = vocabulary
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..data.batches import TranslationBatch
from ..model import ModelConfig
from ..theory.predict import ModelSetting, predict
from ..theory.settings import Text
from .figure_3_config import Condition
from .figure_3_measure import MATRICES, STACKS

Curves = dict[tuple[str, str], NDArray[np.float64]]
"""By matrix and stack, layer by layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Frobenius norms."""

    norm: Curves
    """Of a batch's gradient, mean over the batches."""
    norm_of_mean: Curves
    """Of the gradient averaged over all batches of a seed."""


Predictions = Mapping[tuple[Condition, str, int], Predicted]
"""By condition, placement and blocks of each stack."""


def last_predicted(
    predictions: Predictions, condition: Condition, placement: str, blocks: Sequence[int]
) -> list[float]:
    """Norm of the last W2's gradient, by depth."""
    return [float(predictions[condition, placement, depth].norm["W2", "decoder"][-1]) for depth in blocks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What theory knows of a batch: as if all its sentences were of the mean length."""

    sentences: int
    target_tokens: int
    """Of a sentence."""
    source: Text
    target: Text


def statistics(batches: Sequence[TranslationBatch], vocabulary: int) -> Statistics:
    """Of several batches as if they were one."""
    sentences = sum(len(batch.target_lengths_B) for batch in batches)
    return Statistics(
        sentences=sentences,
        target_tokens=max(1, round(sum(batch.target_tokens for batch in batches) / sentences)),
        source=repeats([(batch.source_BS, batch.source_lengths_B) for batch in batches], vocabulary),
        target=repeats([(batch.target_out_BT, batch.target_lengths_B) for batch in batches], vocabulary),
    )


def repeats(sides: Sequence[tuple[Tensor, Tensor]], vocabulary: int) -> Text:
    """How often two tokens are the same entry, over all pairs. sides: padded ids (B, T) and lengths (B,), by batch."""
    counts_V = np.zeros(vocabulary)
    tokens = pairs_within = same_within = squares = 0
    for ids_BT, lengths_B in sides:
        for ids_T, length in zip(ids_BT.cpu().numpy(), lengths_B.tolist(), strict=True):
            entries, counts = np.unique(ids_T[:length], return_counts=True)
            counts_V[entries] += counts
            squares += int((counts**2).sum())
            same_within += int((counts * (counts - 1)).sum())
            pairs_within += length * (length - 1)
            tokens += length
    pairs_apart = tokens * (tokens - 1) - pairs_within
    return Text(
        same_within=same_within / max(1, pairs_within),
        same_apart=(float((counts_V**2).sum()) - squares) / max(1, pairs_apart),
    )


def predicted(
    placement: str,
    model: ModelConfig,
    single: Sequence[Statistics],
    averaged: Sequence[Statistics],
    *,
    vocabulary: int,
    label_smoothing: float,
) -> Predicted:
    """Of the mean loss per target token. vocabulary: rows of the output projection.

    single: of each batch; the norms are averaged. averaged: of the batches of each seed taken as one, whose gradient is
    what theirs average to.
    """

    def of(batch: Statistics) -> Curves:
        setting = ModelSetting(
            stack="encoder-decoder",
            blocks=model.decoder_blocks,
            width=model.width,
            ffn_width=model.ffn_width,
            heads=model.heads,
            tokens=batch.target_tokens,
            sequences=batch.sentences,
            vocabulary=vocabulary,
            setting="paper",
            dropout=model.dropout,
            label_smoothing=label_smoothing,
            source=batch.source,
            target=batch.target,
        )
        found = predict(placement, setting)
        return {
            (matrix, stack): np.asarray(found[stack].gradient_norm[name], dtype=np.float64)
            for matrix, name in MATRICES.items()
            for stack in STACKS
        }

    return Predicted(norm=_mean([of(one) for one in single]), norm_of_mean=_mean([of(one) for one in averaged]))


def _mean(curves: Sequence[Curves]) -> Curves:
    return {key: np.mean([one[key] for one in curves], axis=0) for key in curves[0]}
