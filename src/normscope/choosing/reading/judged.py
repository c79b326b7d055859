"""From losses or an interval to a finding: one rule for all results."""

import math
from collections.abc import Sequence
from typing import Any

from ...evidence.estimates import estimate
from ..evidence import NEEDS_NATS, EvidenceRow, EvidenceSetting, QuestionName, Support

_UNLEARNED = "neither learned: no loss is below the unigram baseline"


def warmup(low: float, high: float) -> Support:
    """Whether a placement does without, from the interval of the loss without less that with it."""
    if math.isnan(low):
        return "undecided"
    return "contradicted" if low > 0 else "supported" if high < NEEDS_NATS else "undecided"


def lower(low: float, high: float) -> Support:
    """Whether a loss is lower than another, from the interval of their difference."""
    return "supported" if high < 0 else "contradicted" if low > 0 else "undecided"


RULES = {"no-warmup": warmup, "lower-loss": lower}


def paired(
    question: QuestionName,
    *,
    placement: str,
    optimizer: str,
    setting: EvidenceSetting,
    losses: tuple[Sequence[float], Sequence[float]],
    source: Sequence[str],
    note: str = "",
    interval: dict[str, Any] | None = None,
) -> EvidenceRow:
    """The first losses less the second, seeds in pairs.

    interval: the same difference as the result has it, with `mean`, `half_width` and `seeds`; computed where it has
    none. A finding over losses none of which is below the unigram baseline is undecided, whatever the interval says:
    what has not learned shows nothing of what helps learning.
    """
    if interval is None:
        found = estimate([a - b for a, b in zip(*losses, strict=True)])
        mean, half_width, seeds = float(found.mean), float(found.half_width), found.count
    else:
        mean, half_width, seeds = interval["mean"], interval["half_width"], interval["seeds"]
    answer = RULES[question](mean - half_width, mean + half_width)
    has_learned = learned(setting, *losses)
    if not has_learned:
        answer, note = "undecided", "; ".join(filter(None, [note, _UNLEARNED]))
    return EvidenceRow(
        question=question,
        placement=placement,
        optimizer=optimizer,
        setting=setting.name,
        answer=answer,
        mean=mean,
        half_width=None if math.isnan(half_width) else half_width,
        seeds=seeds,
        source=list(source),
        note=note,
        learned=has_learned,
    )


def learned(setting: EvidenceSetting, *losses: Sequence[float]) -> bool:
    """Whether the mean of one of the rows of losses is below the unigram baseline, where that is known."""
    return setting.unigram_nats is None or any(sum(row) / len(row) < setting.unigram_nats for row in losses)
