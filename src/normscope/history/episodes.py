"""Where a loss left its course: spikes, rises that did not come back, and plateaus."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from .noise import LEAST, LEAST_RISE, Level, level_of, levels, logarithms
from .record import History, Recipe, Series

MOST_OF_UNIGRAM = 0.95
"""Share of the unigram baseline's loss from which a model counts as knowing no more than frequencies."""
MOST_OF_UNIFORM = 0.75
"""The same of ln(classes), where the unigram baseline is not known: text's is between 0.6 and 0.9 of it."""
NEVER_LEARNED = math.log(1.1)
"""A loss that has fallen by less than a tenth since its first updates has hardly moved."""
ALIKE = 0.9
"""Mean cosine similarity between tokens from which they are alike."""
LEAST_UPDATES = 40
"""Values of a loss, from which a plateau is told from a beginning."""


class Kind(StrEnum):
    SPIKE = "spike"
    """The loss rose and came back."""
    RISE = "rise"
    """It rose and did not come back."""
    PLATEAU = "plateau"
    """It stopped falling where it should not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One departure of the loss from its course. Losses in nats."""

    kind: Kind
    onset: int
    """The first update at which the loss stands out, or from which it does not fall."""
    end: int | None
    """The first update at which it was back; None where it never was."""
    loss_before: float
    loss_worst: float
    """The highest; inf where the loss was not finite. Of a plateau its median."""
    needs_cause: bool = False
    """Of a plateau that nothing but its level speaks for: a model that was trained before may stand still as well."""


def episodes(history: History) -> list[Episode]:
    """All of them, in the order of their onsets; a plateau only where nothing stood out before."""
    found = _departures(history.loss)
    if any(one.kind is Kind.RISE for one in found):
        return found
    plateau = _plateau(history)
    return sorted([*found, *([plateau] if plateau else [])], key=lambda one: one.onset)


def _departures(loss: Series) -> list[Episode]:
    """Stretches in which the loss stands out of what was before. Those that nearly touch are one."""
    logs = logarithms(loss.values)
    before = levels(logs)
    found: list[Episode] = []
    start: int | None = None
    for at, (value, level) in enumerate(zip(logs, before, strict=True)):
        if start is None and level is not None and value > level.limit:
            start = _first(logs, before, at)
        elif start is not None and (base := before[start]) is not None:
            back = logs[at : at + 2]
            if all(one <= base.upper for one in back):
                found.append(_episode(loss, start, at, base))
                start = None
    if start is not None and (base := before[start]) is not None:
        found.append(_episode(loss, start, None, base))
    return _joined(found, loss)


def _first(logs: Sequence[float], before: Sequence[Level | None], at: int) -> int:
    """Back from where a loss stands out to where it began to rise: over values that were not at the level any more."""
    base = before[at]
    while base is not None and at > 0 and before[at - 1] is not None and logs[at - 1] > base.upper:
        at -= 1
    return at


def _episode(loss: Series, start: int, end: int | None, base: Level) -> Episode:
    values = loss.values[start:end]
    worst = max((v if math.isfinite(v) else math.inf) for v in values)
    return Episode(
        kind=Kind.RISE if end is None else Kind.SPIKE,
        onset=loss.updates[start],
        end=None if end is None else loss.updates[end],
        loss_before=math.exp(base.middle),
        loss_worst=worst,
    )


def _joined(found: Sequence[Episode], loss: Series) -> list[Episode]:
    """What begins within a few values after another has ended is the same unrest."""
    joined: list[Episode] = []
    for one in found:
        last = joined[-1] if joined else None
        if last is not None and last.end is not None and one.onset - last.end < LEAST * loss.spacing:
            joined[-1] = Episode(
                kind=one.kind,
                onset=last.onset,
                end=one.end,
                loss_before=last.loss_before,
                loss_worst=max(last.loss_worst, one.loss_worst),
            )
        else:
            joined.append(one)
    return joined


def _plateau(history: History) -> Episode | None:
    """A loss that no longer falls, and should; one that is low is simply learned."""
    loss = history.loss.finite()
    if len(loss.updates) < LEAST_UPDATES:
        return None
    logs = logarithms(loss.values)
    tail = logs[len(logs) // 2 :]
    level = level_of(tail)
    final = median(tail)
    halves = median(tail[: len(tail) // 2]), median(tail[len(tail) // 2 :])
    near = max(2 * level.spread, LEAST_RISE / 4)
    if halves[0] - halves[1] > max(level.spread, LEAST_RISE / 4):
        return None
    # The last value of the running level that is still above the plateau ends the fall.
    above = [at for at in range(len(logs)) if median(logs[max(0, at - 2) : at + 3]) > final + near]
    first = above[-1] + 1 if above else 0
    if first > len(logs) // 2:
        return None
    found = Episode(
        kind=Kind.PLATEAU,
        onset=loss.updates[first],
        end=None,
        loss_before=loss.values[0],
        loss_worst=math.exp(final),
    )
    if _is_stuck(history, found):
        return found
    return replace(found, needs_cause=True) if median(logs[:LEAST]) - final < NEVER_LEARNED else None


def _is_stuck(history: History, found: Episode) -> bool:
    """Whether a training should not end on a plateau: at the level of frequencies alone, or with tokens all alike."""
    limit = frequencies_nats(history.recipe)
    if limit is not None and found.loss_worst >= limit:
        return True
    return max_similarity(history, history.last_update) >= ALIKE


def frequencies_nats(recipe: Recipe) -> float | None:
    """The loss from which a model knows no more than frequencies; None where the log does not say what that is."""
    if recipe.unigram_nats is not None:
        return MOST_OF_UNIGRAM * recipe.unigram_nats
    return None if recipe.classes is None else MOST_OF_UNIFORM * math.log(recipe.classes)


def max_similarity(history: History, update: int) -> float:
    """The largest mean cosine similarity between the tokens that leave any stack, as last recorded; 0 without any."""
    found = [stack["end_correlation"].at(update) for stack in history.stacks.values() if "end_correlation" in stack]
    return max((value for value in found if value is not None and math.isfinite(value)), default=0.0)
