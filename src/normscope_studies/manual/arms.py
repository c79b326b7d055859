"""The findings of a result's runs: best rates, which placements train without warm-up, and which
end lower than Pre-LN.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from normscope.choosing import evidence
from normscope.placement.base import ModelKind

from ..engine.estimates import estimate
from ..engine.judging import LEARNED_NATS, learned

_AT_AN_END = "the best of its learning-rate sweep is at an end: another rate may end lower"
_UNLEARNED = f"neither learned: no loss is {LEARNED_NATS:g} nats below the unigram baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredArm:
    """One placement, optimiser, warm-up and rate, with the last losses of all its seeds."""

    placement: str
    optimizer: str
    warmup_updates: int
    peak_lr: float
    losses: Sequence[float]
    source: str
    """JSON pointer to the losses; * stands for every entry of a list."""
    at_an_end: bool = False
    """Whether its rate is the least or the largest that was tried, and the best of several."""

    @property
    def mean(self) -> float:
        return sum(self.losses) / len(self.losses)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.placement, self.optimizer, self.warmup_updates

    def best_of(
        self, setting: evidence.EvidenceSetting, rates: Sequence[float]
    ) -> evidence.BestRate:
        """Returns the best rate, as the best arm of a learning-rate sweep."""
        return evidence.BestRate(
            placement=self.placement,
            optimizer=self.optimizer,
            setting=setting.name,
            warmup_updates=self.warmup_updates,
            peak_lr=self.peak_lr,
            ladder=(min(rates), max(rates)),
            at_an_end=self.at_an_end,
            loss_nats=list(self.losses),
            source=self.source,
        )


def measured_in(
    name: str,
    data: Any,
    *,
    model: ModelKind,
    updates: int,
    update_tokens: int,
    text: str,
    unigram_nats: float | None,
    size: tuple[int, int] | None = None,
    part: str = "",
) -> evidence.EvidenceSetting:
    """Returns the setting in which a result, or a part of it, was measured.

    update_tokens: of one update, at most. text: the corpus's folder. size: blocks and width, where
    the result has none.
    part: tells it from the other settings of the same result.
    """
    blocks, width = size or (data["settings"]["blocks"], data["settings"]["width"])
    return evidence.EvidenceSetting(
        name=f"{name}, {part}" if part else name,
        result=name,
        title=data["title"],
        created=data["created"],
        model=model,
        blocks=(blocks, blocks),
        width=(width, width),
        tokens=updates * update_tokens,
        updates=updates,
        text=text.rpartition("/")[2],
        unigram_nats=unigram_nats,
    )


def difference(
    question: evidence.QuestionName,
    setting: evidence.EvidenceSetting,
    first: MeasuredArm,
    second: MeasuredArm,
    *,
    note: str = "",
    stated: tuple[Any, str] | None = None,
) -> evidence.EvidenceRow:
    """Returns the first arm's losses less the second's, seeds in pairs.

    stated: the same difference as the result has it, with `mean`, `half_width` and `seeds`, and the
    pointer to it; computed where it has none. A difference of losses none of which is well below
    the unigram baseline is undecided, whatever its interval says: what has not learned shows
    nothing of what helps learning. So is one whose higher side had its best rate at an end of its
    sweep.
    """
    if stated is None:
        found = estimate([a - b for a, b in zip(first.losses, second.losses, strict=True)])
        mean = float(found.mean)
        half_width = float(found.half_width)
        seeds = found.count
    else:
        mean, half_width, seeds = (stated[0][key] for key in ("mean", "half_width", "seeds"))
    answer = _answer(question, mean - half_width, mean + half_width)
    unigram = setting.unigram_nats
    has_learned = unigram is None or any(learned(arm.mean, unigram) for arm in (first, second))
    if not has_learned:
        answer, note = "undecided", "; ".join(filter(None, [note, _UNLEARNED]))
    row = evidence.EvidenceRow(
        question=question,
        placement=first.placement,
        optimizer=first.optimizer,
        setting=setting.name,
        answer=answer,
        mean=mean,
        half_width=None if math.isnan(half_width) else half_width,
        seeds=seeds,
        source=[first.source, second.source] if stated is None else [stated[1]],
        note=note,
        learned=has_learned,
    )
    return unless_at_an_end(row, first, second)


def unless_at_an_end(
    row: evidence.EvidenceRow, first: MeasuredArm, second: MeasuredArm
) -> evidence.EvidenceRow:
    """Returns a decided difference as undecided where the side that came off worse had its best
    rate at an end of its sweep: behind it that side may end lower than it did.

    first, second: of which the row has the first one's losses less the second's.
    """
    worse = {"contradicted": first, "supported": second}.get(row.answer)
    if worse is None or not worse.at_an_end:
        return row
    notes = [row.note] if _AT_AN_END in row.note else filter(None, [row.note, _AT_AN_END])
    return replace(row, answer="undecided", note="; ".join(notes))


def _answer(question: evidence.QuestionName, low: float, high: float) -> evidence.Support:
    """Tells whether a loss is lower than another, or a placement trains without a warm-up, by a
    difference's interval.
    """
    if math.isnan(low):
        return "undecided"
    below = 0.0 if question == "lower-loss" else evidence.NEEDS_NATS
    return "contradicted" if low > 0 else "supported" if high < below else "undecided"


def own_best(
    setting: evidence.EvidenceSetting, arms: Sequence[MeasuredArm], note: str = ""
) -> Iterator[evidence.EvidenceRow | evidence.BestRate]:
    """The best rates, and what the losses there say.

    Where one rate was tried for all, that says who does without warm-up at that rate, and of who
    ends lower the difference alone, which decides nothing: another rate may be the better one for
    either.
    """
    best: dict[tuple[str, str, int], MeasuredArm] = {}
    for arm in arms:
        if arm.key not in best or arm.mean < best[arm.key].mean:
            best[arm.key] = arm
    for key, arm in best.items():
        rates = [one.peak_lr for one in arms if one.key == key]
        if len(rates) > 1:
            best[key] = replace(arm, at_an_end=arm.peak_lr in (min(rates), max(rates)))
            yield best[key].best_of(setting, rates)
    for pair in dict.fromkeys(arm.key[:2] for arm in arms):
        own = [arm for key, arm in best.items() if key[:2] == pair]
        rates = sorted({arm.peak_lr for arm in arms if arm.key[:2] == pair})
        one_rate = f"at the rate {rates[0]:g} alone" if len(rates) == 1 else ""
        said = "; ".join(filter(None, [one_rate, note]))
        theirs = [arm for key, arm in best.items() if key[:2] == (evidence.BASELINE, pair[1])]
        cold = [arm for arm in own if arm.warmup_updates == 0]
        warm = [arm for arm in own if arm.warmup_updates]
        if cold and warm:
            yield difference("no-warmup", setting, cold[0], warm[0], note=said)
        if theirs and pair[0] != evidence.BASELINE:
            first, second = (min(some, key=lambda arm: arm.mean) for some in (own, theirs))
            found = difference("lower-loss", setting, first, second, note=said)
            yield replace(found, answer="undecided", leans=False) if one_rate else found
