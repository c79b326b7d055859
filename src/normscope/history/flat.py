"""The flat end of a loss, and whether it had learned before: by the curve's shape, and by the level
at which a model knows no more than how frequent tokens are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from ..report.words import counted, percentage, significant
from .record import History, LoggedSeries, TrainingRecipe

LEAST_VALUES, LEAST_UPDATES = 15, 40
"""Values and updates from which a flat stretch is told from a beginning: a log of every 500 updates
has few of the one."""
_PARTS = 100
"""Into so many parts a log is cut at most; what is compared is their medians, so that neither an
outlier decides nor noise that a few neighbours share."""
SMALL_FALL = 0.03
"""A loss that falls by less than 3 % over half of its log does not learn, however surely it
falls."""
_LARGE_NOISE = math.log(1.1)
"""The noise from which on nothing is said: it could hide a fall of a tenth over half of the log."""
_LATEST_SHARE = 20
"""A loss has begun to fall whose last twentieth lies below the noise of what was before: Post-LN at
a low rate stands still for long, and then learns."""
_OF_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of normal noise."""
_NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatStretch:
    """A loss that has not fallen for half of its log or longer, up to the end."""

    onset: int
    """The first update at which it was as low as it stays; dated to a hundredth of the log."""
    updates: int
    """The updates over which it is flat, up to the end of the log."""
    share: float
    """The share of the log that is flat, from 0.5 to 1."""
    level_nats: float
    """Median of the log's last quarter."""
    first_nats: float
    """The level at which the log begins: the median of its first three values."""


def flat_stretch(loss: LoggedSeries, logs: Sequence[float]) -> FlatStretch | None:
    """Returns the flat stretch in which a log ends; None of a loss that still falls, of one that is
    too noisy to tell, and of fewer than 15 values or 40 updates.

    The second half counts as flat if its trend (Theil and Sen: the median slope between any two
    parts) is a fall of less than 3 %, or of less than twice its standard error, which for m parts
    of scatter s is s · √(12/m). logs: the logarithms of the finite losses.
    """
    if len(logs) < LEAST_VALUES:
        return None
    starts, parts = parts_of(logs)
    tail = parts[len(parts) // 2 :]
    fall, spread = fall_of(tail)
    error = spread * math.sqrt(12 / len(tail))
    if 2 * error > _LARGE_NOISE or fall > max(2 * error, SMALL_FALL):
        return None
    if has_begun_to_fall(parts, spread, least=SMALL_FALL):
        return None
    limit = median(tail) + max(3 * spread, SMALL_FALL)
    # The median of three neighbours, so that no single part that stands out ends the stretch.
    above = [at for at in range(len(parts)) if median(parts[max(0, at - 1) : at + 2]) > limit]
    first = above[-1] + 1 if above else 0
    if first > len(parts) // 2:
        return None
    onset = loss.updates[starts[first]]
    updates = loss.updates[-1] - onset + 1
    if updates < LEAST_UPDATES:
        return None
    return FlatStretch(
        onset=onset,
        updates=updates,
        share=1 - starts[first] / len(logs),
        level_nats=math.exp(median(tail[len(tail) // 2 :])),
        first_nats=math.exp(median(logs[:3])),
    )


def parts_of(logs: Sequence[float]) -> tuple[range, list[float]]:
    """Splits a log into parts, a hundred at most; returns where they begin, and their medians."""
    starts = range(0, len(logs), math.ceil(len(logs) / _PARTS))
    return starts, [median(logs[start : start + starts.step]) for start in starts]


def has_begun_to_fall(parts: Sequence[float], spread: float, *, least: float) -> bool:
    """Tells whether the last twentieth lies below the noise of the second half, and by `least` or
    more.

    spread: how far the second half scatters about its trend.
    """
    latest = parts[-max(3, len(parts) // _LATEST_SHARE) :]
    begun = max(3 * _OF_MEDIAN * spread / math.sqrt(len(latest)), least)
    return median(latest) < median(parts[len(parts) // 2 :]) - begun


def fall_of(parts: Sequence[float]) -> tuple[float, float]:
    """Returns how far values fall from the first to the last, along the line of their median slope,
    and how far they scatter about that line.
    """
    slopes = [
        (parts[late] - parts[early]) / (late - early)
        for late in range(len(parts))
        for early in range(late)
    ]
    slope = median(slopes)
    left = [value - slope * at for at, value in enumerate(parts)]
    middle = median(left)
    spread = _NORMAL * median(abs(value - middle) for value in left)
    return -slope * (len(parts) - 1), spread


MOST_OF_UNIGRAM = 0.95
"""Share of the entropy of single targets from which a model counts as knowing no more than how
frequent they are."""
MOST_OF_UNIFORM = 0.67
"""The same of ln V, where that entropy is not known: that of text is 0.69 of it for 50,257 pieces
and for 138 characters, 0.8 for 65. Of bytes and of words with spaces it is 0.5 to 0.6, so that a
loss below this share proves nothing ..."""
LEARNED_OF_UNIFORM = 0.5
"""... down to this one, below which no text stands at its frequencies."""
LEAST_OF_TEXT = 2.7
"""Nats: letters of English have 4.03 bits, 2.79 nats (Shannon 1951, Prediction and Entropy of
Printed English, 27 letters); pairs of them 0.7 of ln 27, which is learned."""
MOST_OF_GUESSING = 0.95
"""The share of ln V, for so few classes that they are no text's: they may be equally frequent, or
not at all.
"""
LEAST_FLAT = 150
"""Updates of a flat stretch from which it is more than the shoulder that healthy losses have at
this level: of ten small trainings the longest was 100."""
_SOON = 0.75
"""The share of a log that has to be flat: text's frequencies are learned in its first quarter,
where nothing else is.
"""


class Standing(StrEnum):
    """The meaning of a flat loss, as far as it can be known."""

    FREQUENCIES = "knows no more than how frequent tokens are"
    LEARNED = "had learned before it became flat"
    UNKNOWN = "cannot be told from either"


def frequencies_nats(recipe: TrainingRecipe) -> float | None:
    """Returns the loss from which a model surely knows no more than frequencies; None where nothing
    says what that is.

    >>> round(frequencies_nats(TrainingRecipe(unigram_nats=3.39)), 2)
    3.22
    >>> round(frequencies_nats(TrainingRecipe(classes=50_257)), 2)
    7.25
    >>> round(frequencies_nats(TrainingRecipe(classes=2)), 2)
    0.66
    """
    if recipe.unigram_nats is not None:
        return MOST_OF_UNIGRAM * recipe.unigram_nats
    if recipe.classes is None:
        return None
    uniform = math.log(recipe.classes)
    return max(MOST_OF_UNIFORM * uniform, min(LEAST_OF_TEXT, MOST_OF_GUESSING * uniform))


def standing(history: History, flat: FlatStretch) -> Standing:
    """Judges the level of a flat loss, given what is known of its targets.

    With neither their entropy nor V, the first losses stand in for ln V; they may be those of a
    model that was trained before, so that they never prove that nothing was learned.
    """
    recipe, level = history.recipe, flat.level_nats
    limit = frequencies_nats(recipe)
    if limit is not None and level >= limit:
        shaped = recipe.unigram_nats is not None or flat.share >= _SOON
        proved = shaped and flat.updates >= LEAST_FLAT and not still_rises(history)
        return Standing.FREQUENCIES if proved else Standing.UNKNOWN
    if recipe.unigram_nats is not None:
        return Standing.LEARNED
    if recipe.classes is not None:
        learned_below = LEARNED_OF_UNIFORM * math.log(recipe.classes)
    else:
        learned_below = max(LEARNED_OF_UNIFORM * flat.first_nats, LEAST_OF_TEXT)
    return Standing.LEARNED if level < learned_below else Standing.UNKNOWN


def still_rises(history: History) -> bool:
    """Tells whether the rate rises to its highest value in the last tenth of the log: the training
    at its peak has not been seen yet.
    """
    rates = history.rate.finite().values
    latest = rates[-max(2, len(rates) // 10) :]
    return bool(latest) and latest[-1] == max(rates) and latest[-1] > latest[0]


def flat_words(flat: FlatStretch) -> str:
    """Since when the loss is flat, as a clause."""
    return (
        f"the loss has not fallen since update {flat.onset:,}, over {percentage(flat.share, 0)} of "
        "the log"
    )


def level_words(recipe: TrainingRecipe, level_nats: float) -> str:
    """Compares the level of a flat loss with what is known of its targets, as a clause; "" where
    nothing is.
    """
    stands = f"it stands at {significant(level_nats, 3)} nats"
    if recipe.unigram_nats is not None:
        over = f" (over {recipe.unigram_counted})" if recipe.unigram_counted else ""
        return (
            f"{stands}, and a model that knows nothing but how frequent tokens are at "
            f"{significant(recipe.unigram_nats, 3)}{over}"
        )
    if recipe.classes is None:
        return stands
    uniform = math.log(recipe.classes)
    return (
        f"{stands}, {percentage(level_nats / uniform, 0)} of ln {recipe.classes:,} "
        f"({significant(uniform, 3)} for uniform guessing)"
    )


def what_would_tell(history: History, flat: FlatStretch) -> str:
    """Returns what has to be known beside a flat loss to say whether the model had learned
    before.
    """
    recipe = history.recipe
    limit = frequencies_nats(recipe)
    if limit is not None and flat.level_nats >= limit and still_rises(history):
        return "train on to the peak of the rate, which still rises where the log ends"
    if limit is not None and flat.level_nats >= limit and flat.updates < LEAST_FLAT:
        return (
            f"train on: healthy trainings too stand at this level for a while, and "
            f"{counted(flat.updates, 'update')} are too few to tell"
        )
    if recipe.unigram_counted:
        return (
            f"let batches() give more: the entropy of their targets is not known from "
            f"{recipe.unigram_counted}"
        )
    if recipe.classes is not None:
        return (
            "write batches() into the model's file, so that the entropy of its targets is known: a "
            "model that knows nothing but how frequent they are stands there"
        )
    return (
        "name the model beside the log (`normscope doctor MODEL --log LOG`): its vocabulary, and "
        "batches() in its file, say where a model stands that has learned nothing"
    )
