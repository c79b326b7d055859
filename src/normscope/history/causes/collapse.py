"""Post-LN's collapse: tokens become alike in the stream, and the model knows no more than frequencies."""

from ...report.words import significant
from ..episodes import ALIKE, Episode, Kind, frequencies_nats, max_similarity
from ..places import first_place
from ..record import History
from .judged import NO, Cause, Judged, unless_recorded
from .logits import grown_at


def judge(history: History, episode: Episode) -> Judged:
    """Fits a loss that stays up while the tokens that leave a stack have become alike, which before they were not."""
    if episode.kind is Kind.SPIKE:
        return NO
    if not any("end_correlation" in stack for stack in history.stacks.values()):
        return unless_recorded("the mean cosine similarity between tokens (Monitor)")
    alike = _alike_at(history, episode)
    led_by = first_place(history, episode)
    grown = grown_at(history, episode)
    if alike is None or (led_by is not None and led_by.quantity == "update_ratio") or (grown and grown[0] < alike):
        # One sub-layer has run away, or the output layer: the collapse is what came of it.
        return NO
    now, before = max_similarity(history, alike), max_similarity(history, episode.onset - 1)
    if episode.onset > 1 and before >= ALIKE:
        return NO
    was = f", {significant(before, 2)} before" if before else ""
    evidence = [
        f"at update {alike:,} the mean cosine similarity between the tokens that leave the stack is "
        f"{significant(now, 2)}{was}"
    ]
    limit = frequencies_nats(history.recipe)
    if limit is not None and episode.loss_worst >= limit:
        evidence.append("the loss is that of a model that knows nothing but how frequent tokens are")
    return Judged(fits=True, evidence=tuple(evidence))


def _alike_at(history: History, episode: Episode) -> int | None:
    """The first measured update from the onset on at which the tokens that leave a stack are alike, and stay so."""
    known = sorted({u for s in history.stacks.values() if "end_correlation" in s for u in s["end_correlation"].updates})
    after = [update for update in known if update >= episode.onset]
    if not after or max_similarity(history, history.last_update) < ALIKE:
        return None
    return next((update for update in after if max_similarity(history, update) >= ALIKE), None)


CAUSE = Cause(
    id="post-ln-collapse",
    title="collapse: the stream no longer tells tokens apart, as in Post-LN at too high a rate",
    judge=judge,
    attempt="go back to a checkpoint before the onset with a rate ten times lower or a longer warm-up, or take a "
    "placement that keeps a skip path free of norms (Pre-LN, Peri-LN, DeepNorm)",
)
