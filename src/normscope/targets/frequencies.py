"""The frequencies of a model's targets, counted over some batches of the user's once a log asks."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..measure.unchanged import random_state_kept
from ..tasks.loss import unigram_entropy_nats
from ..tasks.own_batches import IGNORED, Source, labels_in
from ..tasks.own_functions import ModelFile

_MOST_BATCHES, _MOST_TARGETS = 256, 200_000
"""The largest numbers of batches and of targets that are asked for."""
_MOST_SINGLE = 0.05
"""Share of the targets that occur once, from which their entropy is not known: it is about the
chance that the next one is none of those seen (Good 1953, The population frequencies of
species)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFrequencies:
    """The loss of a model that knows how frequent its targets are, and nothing else."""

    nats: float | None
    """The entropy of single targets; None where too few were counted to know it."""
    over: str
    """The tokens that were counted, in words."""


Counting = Callable[[], TargetFrequencies | None]
"""Counts when it is called, as batches take time; None where the loss is not the cross-entropy of
labels."""


def counted_in(file: ModelFile) -> TargetFrequencies | None:
    """Counts the labels of batches() in the user's file, at most 256 batches and not many more than
    200,000 labels, with random numbers left as they were.

    None where the file has a loss() of its own, which may be any, or where its batches have no
    labels that are whole numbers. Raises UserError as batches() does.
    """
    if file.has_loss:
        return None
    with random_state_kept():
        source, _, _ = file.sources()
        parts, batches = _labels_of(source)
    if not parts:
        return None
    return frequencies_of(np.concatenate(parts), batches)


def frequencies_of(targets: NDArray[np.int64], batches: int) -> TargetFrequencies:
    """Returns the entropy of some targets, unless too many of them occur once."""
    # What stands for a token may be any whole number; what is counted are their places in a list.
    _, places = np.unique(targets, return_inverse=True)
    counts = np.bincount(places)
    single = int((counts == 1).sum()) / len(targets)
    over = f"{len(targets):,} target tokens in {batches:,} batch{'' if batches == 1 else 'es'}"
    if single > _MOST_SINGLE:
        return TargetFrequencies(nats=None, over=f"{over}, of which {single:.0%} occur once")
    return TargetFrequencies(nats=unigram_entropy_nats(places), over=over)


def _labels_of(source: Source) -> tuple[list[NDArray[np.int64]], int]:
    """Returns the labels that count, batch by batch; none where a batch has none that are whole
    numbers.
    """
    parts: list[NDArray[np.int64]] = []
    counted = batches = 0
    numbers = range(_MOST_BATCHES if source.count is None else min(source.count, _MOST_BATCHES))
    for number in numbers:
        labels = labels_in(source.batch(number, 0))
        if labels is None or labels.is_floating_point():
            return [], 0
        kept = labels[labels != IGNORED].flatten().cpu().numpy().astype(np.int64)
        parts.append(kept)
        counted += len(kept)
        batches += 1
        if counted >= _MOST_TARGETS:
            break
    return (parts, batches) if counted else ([], 0)
