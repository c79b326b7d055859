"""A rate too high: updates that are too large for the weights, mostly where a warm-up has reached its peak."""

from ...report.words import learning_rate, percentage, significant
from ..episodes import Episode, Kind
from ..places import GROWN, first_place, growth
from ..record import History
from .judged import NO, Cause, Judged, unless_recorded

_NEAR_PEAK = 0.5
"""Share of the highest rate so far from which a rate is near its peak."""
LARGE = 0.1
"""An update of a tenth of the weights' own norm; healthy trainings have a thousandth."""


def judge(history: History, episode: Episode) -> Judged:
    """Fits a rise near the highest rate so far, or one at which a sub-layer's updates have become large."""
    if episode.kind is Kind.PLATEAU:
        return NO
    evidence = [*_updates(history, episode), *_peak(history, episode)]
    if evidence:
        return Judged(fits=True, evidence=tuple(evidence))
    missing = ([] if history.rate else ["the learning rate"]) + (
        [] if history.of_sublayers("update_ratio") else ["update-to-weight ratios of the sub-layers (Monitor.stepped)"]
    )
    return unless_recorded(*missing)


def _updates(history: History, episode: Episode) -> list[str]:
    place = first_place(history, episode)
    if place is not None and place.quantity == "update_ratio":
        return [f"the updates of {place.sublayer} are {significant(place.times, 2)} times what they were"]
    if (grown := growth(history, "update_ratio", episode.onset)) is not None and grown >= GROWN:
        return [f"the updates of most sub-layers are {significant(grown, 2)} times what they were"]
    ratios = [
        value
        for series in history.of_sublayers("update_ratio").values()
        for value in (*series.before(episode.onset).values[-1:], *series.since(episode.onset).values[:1])
    ]
    if ratios and max(ratios) >= LARGE:
        return [f"an update changes weights by up to {percentage(max(ratios), 0)} of their norm"]
    return []


def _peak(history: History, episode: Episode) -> list[str]:
    """The rate at the onset is near its highest so far, which it has only just reached."""
    so_far = history.rate.finite().before(episode.onset + 1)
    if not so_far or len(set(so_far.values)) == 1:
        return []
    highest = max(so_far.values)
    reached = so_far.updates[so_far.values.index(highest)]
    # An update's effect on the loss may take as long as the rise to its rate took.
    if so_far.values[-1] < _NEAR_PEAK * highest or episode.onset > 2 * reached + 20:
        return []
    return [f"the rate had come to its highest, {learning_rate(highest)}, at update {reached:,}"]


CAUSE = Cause(
    id="rate-too-high",
    title="a rate too high for these weights",
    judge=judge,
    attempt="go back to a checkpoint before the onset with a lower peak rate or a longer warm-up; `normscope doctor` "
    "says which rates the model bears",
    where="sub-layer",
)
