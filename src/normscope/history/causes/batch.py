"""A bad batch: one loss stands out, and the next ones are as before, so the weights were hardly changed."""

from ...report.words import significant
from ..episodes import Episode, Kind
from ..record import History
from .judged import NO, Cause, Judged

_LONGEST = 2
"""Values of the loss that stand out: a rough batch may be followed by a small echo."""


def judge(history: History, episode: Episode) -> Judged:
    """Fits a spike that is over at once. What weights have learned is not learned again in two updates."""
    if episode.kind is not Kind.SPIKE or episode.end is None:
        return NO
    loss = history.loss
    out = [update for update in loss.updates if episode.onset <= update < episode.end]
    if len(out) > _LONGEST or loss.spacing > 1:
        return NO
    after = loss.at(episode.end)
    words = [
        f"the loss stands out for {len(out)} update{'s' if len(out) > 1 else ''} and is back at {significant(after, 3)}"
    ]
    norm, before = history.gradient_norm.at(episode.onset), history.gradient_norm.at(episode.onset - 1)
    if norm and before:
        words.append(f"the gradient's norm is {significant(norm, 3)} there, {significant(before, 3)} the update before")
    return Judged(fits=True, evidence=tuple(words))


CAUSE = Cause(
    id="bad-batch",
    title="one bad batch of data; the weights were hardly changed",
    judge=judge,
    attempt="look at the data of that update (broken encoding, repeated lines, wrong labels); gradient clipping keeps "
    "such a batch from doing harm",
)
