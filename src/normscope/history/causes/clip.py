"""A clip that hides the rate: updates are those of a rate a thousand times smaller."""

from statistics import median

from ...doctor.lint.clipping import Clipping
from ...report.words import learning_rate, significant
from ..episodes import Episode, Kind
from ..record import History
from .judged import NO, Cause, Judged, unless_recorded


def judge(history: History, episode: Episode) -> Judged:
    """Fits a plateau whose gradients are clipped to less than a thousandth, with an optimiser that feels it."""
    if episode.kind is not Kind.PLATEAU:
        return NO
    norms = [v for v in history.gradient_norm.finite().since(episode.onset).values if v > 0]
    clip = history.recipe.clip_norm
    if not norms or clip is None:
        return unless_recorded("the gradient's norm before clipping, and what it is clipped to")
    norm = median(norms)
    rate = _rate(history, episode)
    # Without ε and the gradient's entries an optimiser that divides is taken to divide well.
    epsilon = 0.0 if history.recipe.divides else None
    clipping = Clipping(gradient_norm=norm, clip_norm=clip, rate=rate or 1.0, epsilon=epsilon)
    if not clipping.is_far_below:
        return NO
    if history.recipe.divides is None:
        return unless_recorded("the optimiser's class: SGD's updates shrink with the clip, Adam's do not")
    if not clipping.hides_rate:
        return NO
    felt = (
        ""
        if rate is None
        else f", so that the rate of {learning_rate(rate)} acts as {learning_rate(clipping.effective_rate)}"
    )
    return Judged(
        fits=True,
        evidence=(f"the gradient's norm is {significant(norm, 3)} and is clipped to {significant(clip, 3)}{felt}",),
    )


def _rate(history: History, episode: Episode) -> float | None:
    rates = [v for v in history.rate.finite().since(episode.onset).values if v > 0]
    return median(rates) if rates else None


CAUSE = Cause(
    id="clip-hides-rate",
    title="a clip that hides a rate a thousand times smaller",
    judge=judge,
    attempt="clip to about the gradient's usual norm, and then lower the rate: it has never acted as it is written",
)
