"""Logits that grow: the output layer leaves the rest of the model behind."""

from statistics import median

from ...report.words import significant
from ..episodes import Episode, Kind
from ..places import GROWN, first_place, growth
from ..record import History
from .judged import NO, Cause, Judged, unless_recorded

_PAST = 9


def grown_at(history: History, episode: Episode) -> tuple[int, float] | None:
    """The first measured update around the onset at which logits are three times their past, and how many times."""
    logits = history.logit_deviation.finite()
    updates = [*logits.before(episode.onset).updates[-1:], *logits.since(episode.onset).updates]
    past = logits.before(episode.onset)
    for update in updates:
        value, before = logits.at(update), past.before(update).values[-_PAST:]
        if value is not None and before and value >= GROWN * median(before):
            return update, value / median(before)
    return None


def judge(history: History, episode: Episode) -> Judged:
    """Fits a rise at which logits have grown threefold, while the sub-layers' own updates have not."""
    if episode.kind is Kind.PLATEAU:
        return NO
    if not history.logit_deviation.before(episode.onset) or not history.logit_deviation.since(episode.onset):
        return unless_recorded("the logits' standard deviation (Monitor)")
    found = grown_at(history, episode)
    place = first_place(history, episode)
    steps = growth(history, "update_ratio", episode.onset)
    if found is None or (place is not None and place.quantity == "update_ratio") or (steps or 0.0) >= GROWN:
        return NO
    update, times = found
    return Judged(
        fits=True,
        evidence=(
            f"at update {update:,} the logits' standard deviation is {significant(times, 2)} times its median before",
            "the sub-layers' updates have not grown as much: what grows is the output layer",
        ),
    )


CAUSE = Cause(
    id="logits-growing",
    title="logits that grow faster than the model learns",
    judge=judge,
    attempt="lower the rate of the output matrix, decay its weights, or add a z-loss (1e-4 · log² Z; PaLM, "
    "arXiv:2204.02311, section 5); norms on queries and keys where attention's scores grow too",
    where="output layer",
)
