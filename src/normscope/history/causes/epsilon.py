"""Adam's ε above the gradients: updates are those of momentum SGD at a tiny rate."""

from statistics import median

from ...report.words import significant
from ..episodes import Episode, Kind
from ..record import History
from .judged import NO, Cause, Judged, unless_recorded

_SWAMPS = 0.3
"""An update that ε alone shapes is rate · gradient / ε; from this share of it, ε is most of the denominator."""


def judge(history: History, episode: Episode) -> Judged:
    """Fits a plateau where sub-layers move by rate · (clipped gradient) / ε, as they do where ε is all that divides.

    Adam's update is rate · m / (√v + ε). Where ε is lost beside √v, it is far smaller than rate · gradient / ε.
    """
    if episode.kind is not Kind.PLATEAU or history.recipe.divides is False:
        return NO
    epsilon = history.recipe.epsilon
    moved, norms = history.of_sublayers("update_norm"), history.of_sublayers("gradient_norm")
    if epsilon is None or not moved or not history.rate:
        return unless_recorded("ε, the rate, and how far each update moves the sub-layers (Monitor.stepped)")
    shares = [
        step * epsilon / (rate * gradient * _clipped(history, update))
        for place, series in moved.items()
        for update, step in zip(series.updates, series.values, strict=True)
        if update >= episode.onset
        and (gradient := norms[place].at(update) if place in norms else None)
        and (rate := history.rate.at(update))
    ]
    if not shares or median(shares) < _SWAMPS:
        return NO
    share = median(shares)
    return Judged(
        fits=True,
        evidence=(
            f"with ε = {significant(epsilon, 2)} updates are within a factor of "
            f"{significant(max(share, 1 / share), 2)} of rate · gradient / ε: it is ε that divides them, and not the "
            "gradient's own size",
        ),
    )


def _clipped(history: History, update: int) -> float:
    norm, clip = history.gradient_norm.at(update), history.recipe.clip_norm
    return 1.0 if not norm or clip is None else min(1.0, clip / norm)


CAUSE = Cause(
    id="epsilon-swamps-gradients",
    title="Adam's ε larger than the gradients that it is added to",
    judge=judge,
    attempt="lower ε well below the gradient's usual entries (1e-8 is the default of most libraries)",
)
