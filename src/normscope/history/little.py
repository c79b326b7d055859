"""A training that learned little and stands, at a rate above those that such models are trained
with: what a log says with its model, and neither alone.
"""

import math
from dataclasses import replace
from statistics import median

from ..doctor.result import Record
from ..report.words import counted, learning_rate, percentage
from .episodes import Episode, EpisodeKind, logarithms
from .explain import FLAT_UNKNOWN, Explanation
from .flat import (
    LEAST_FLAT,
    LEAST_VALUES,
    fall_of,
    flat_stretch,
    flat_words,
    frequencies_nats,
    has_begun_to_fall,
    level_words,
    parts_of,
    still_rises,
)
from .joined import lasting, peak_of
from .patterns import FLAT, FLAT_TITLE, LITTLE
from .record import History

LEAST_OF_UNIGRAM = 0.9
"""Share of the entropy of single targets down to which little is learned."""
LITTLE_FALL = 0.045
"""A loss that falls by less than 4.5 % over half of its log hardly falls, half again as much as
what counts as flat. Of small trainings at 0.9 of that entropy or above, those that learned fell by
5.9 % or more, and those that failed by 3.4 % at most; both were seen before this was set."""
_FROM_THE_BEGINNING = 0.97
"""Share of a short log that has to be flat: healthy trainings stand still at this level after they
have come down to it, and not before."""
_ATTEMPT = (
    "train again with a lower rate first; where that ends at the same loss, there may be no more "
    "to learn"
)


def hardly_falls(history: History) -> bool:
    """Tells whether the loss falls by little over the second half of the log, at any level."""
    return _little(history) is not None


def beside_rate(explanation: Explanation, diagnosis: Record) -> Explanation:
    """Adds a plateau where the loss stands little below what tokens' frequencies give, and the rate
    lies above the usual range of the model; returns the explanation unchanged where either is not
    known, or something that lasts is explained already.
    """
    history = explanation.history
    if lasting(explanation) is not None or still_rises(history):
        return explanation
    above = _above_usual(history, diagnosis)
    if not above:
        return explanation
    found = _short(history) or _stands(history)
    if found is None:
        return explanation
    found = replace(found, evidence=(*found.evidence, above))
    others = [one for one in explanation.episodes if one.cause != FLAT_UNKNOWN]
    spikes = [one for one in others if one.kind is EpisodeKind.SPIKE]
    beside = [one for one in others if one.kind is not EpisodeKind.SPIKE]
    episodes = sorted([*spikes, found], key=lambda one: one.onset)
    return replace(explanation, episodes=(*episodes, *beside))


def _above_usual(history: History, diagnosis: Record) -> str:
    """Returns how far the rate lies above the usual range, as a clause; "" where it does not, or
    where either is not known.
    """
    advice = diagnosis.advice
    if advice is None or (span := advice.best_interval) is None:
        return ""
    if history.recipe.divides is False and advice.optimizer != "sgd":
        # The range is that of another optimiser than the log's.
        return ""
    peak, _ = peak_of(history)
    rate = advice.wanted_rate if peak is None else peak
    if rate is None or rate <= span.high:
        return ""
    return (
        f"the rate of {learning_rate(rate)} is above the usual range of such a model under "
        f"{advice.optimizer}, which ends at {learning_rate(span.high, 2)}"
    )


def _short(history: History) -> Episode | None:
    """Returns the plateau of a loss that is flat since its beginning, over too few updates to be
    called so by itself.
    """
    loss, limit = history.loss.finite(), frequencies_nats(history.recipe)
    flat = flat_stretch(loss, logarithms(loss.values))
    if flat is None or limit is None or flat.level_nats < limit:
        return None
    if flat.updates >= LEAST_FLAT or flat.share < _FROM_THE_BEGINNING:
        return None
    few = f"{counted(flat.updates, 'update')} are few, and no lower rate was tried"
    return Episode(
        kind=EpisodeKind.PLATEAU,
        onset=flat.onset,
        loss_before=loss.values[0],
        loss_worst=flat.level_nats,
        cause=FLAT,
        title=FLAT_TITLE,
        evidence=(flat_words(flat), level_words(history.recipe, flat.level_nats), few),
        attempt=_ATTEMPT,
        flat=flat,
    )


def _stands(history: History) -> Episode | None:
    """Returns the plateau of a loss that hardly falls where little is learned."""
    found, recipe = _little(history), history.recipe
    limit = frequencies_nats(recipe)
    if recipe.unigram_nats is not None:
        limit = LEAST_OF_UNIGRAM * recipe.unigram_nats
    if found is None or limit is None or found.loss_worst < limit:
        return None
    return replace(found, evidence=(*found.evidence, level_words(recipe, found.loss_worst)))


def _little(history: History) -> Episode | None:
    """A loss that hardly falls over the second half of a log that is long enough to tell."""
    loss = history.loss.finite()
    logs = logarithms(loss.values)
    if len(logs) < LEAST_VALUES or loss.updates[-1] - loss.updates[0] + 1 < LEAST_FLAT:
        return None
    starts, parts = parts_of(logs)
    tail = parts[len(parts) // 2 :]
    fall, spread = fall_of(tail)
    # What noise may hide is taken for a fall, so that nothing is said of a loss that may learn.
    error = spread * math.sqrt(12 / len(tail))
    if fall + error > LITTLE_FALL or has_begun_to_fall(parts, spread, least=LITTLE_FALL):
        return None
    limit = median(tail) + max(3 * spread, LITTLE_FALL)
    above = [at for at in range(len(parts)) if median(parts[max(0, at - 1) : at + 2]) > limit]
    first = above[-1] + 1 if above else 0
    return Episode(
        kind=EpisodeKind.PLATEAU,
        onset=loss.updates[starts[min(first, len(parts) - 1)]],
        loss_before=loss.values[0],
        loss_worst=math.exp(median(tail[len(tail) // 2 :])),
        cause=LITTLE,
        title="learned little or nothing, at a rate above the usual range",
        evidence=(
            f"over the second half of the log the loss fell by {percentage(max(fall, 0.0), 1)}",
        ),
        attempt=_ATTEMPT,
    )
