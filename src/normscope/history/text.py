"""A history on one screen: the course of the loss with a mark at every onset, and each episode in a few lines."""

import math
from collections.abc import Iterator, Sequence
from statistics import median
from textwrap import wrap

from ..report.words import BARS, BROKEN, counted, joined, significant
from .explain import Explained, Explanation
from .record import Series

WIDTH, MOST_LINES = 96, 38
_MARK = "▲"
_COLUMNS = 64


def page(explanation: Explanation) -> list[str]:
    """Lines of at most `WIDTH` columns, under forty in all; episodes for which there is no room are counted."""
    history, found = explanation.history, explanation.episodes
    lines = [head_of(explanation), ""]
    lines += ["  " + line for line in _course(history.loss, [one.onset for one in found])]
    for number, one in enumerate(found):
        part = ["", *_episode(one)]
        if len(lines) + len(part) > MOST_LINES - 2:
            left = found[number:]
            starts = joined([f"{other.onset:,}" for other in left[:8]]) + (" …" if len(left) > 8 else "")
            lines += [
                "",
                *wrap(f"and {counted(len(left), 'more episode')}, from update {starts}; --json has all", WIDTH),
            ]
            break
        lines += part
    return lines


def head_of(explanation: Explanation) -> str:
    """How many episodes there are, over which updates, and what was read."""
    history, found = explanation.history, explanation.episodes
    said = counted(len(found), "episode") if found else "no spike and no plateau"
    return f"{said} — loss over {counted(history.last_update, 'update')}, {history.source}"


def _course(loss: Series, onsets: Sequence[int]) -> Iterator[str]:
    """The loss in letters, and a line with a mark below the letter of each onset."""
    if not loss:
        return
    first, last = loss.updates[0], loss.updates[-1]
    columns = min(_COLUMNS, len(loss.updates))

    def column(update: int) -> int:
        return min(columns - 1, (update - first) * columns // max(1, last - first + 1))

    groups: list[list[float]] = [[] for _ in range(columns)]
    for update, value in zip(loss.updates, loss.values, strict=True):
        groups[column(update)].append(value)
    marked = {column(onset) for onset in onsets}
    # A spike of one update is not to be averaged away where it is marked.
    shown = [_shown(group, at in marked) for at, group in enumerate(groups)]
    known = [value for value in shown if value is not None and math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    step = (high - low) / (len(BARS) - 1) or 1.0
    letters = (" " if v is None else BROKEN if not math.isfinite(v) else BARS[round((v - low) / step)] for v in shown)
    yield f"loss {significant(high, 3):>6} ┐ {''.join(letters)}"
    marks = "".join(_MARK if at in marked else " " for at in range(columns)).rstrip()
    yield f"     {significant(low, 3):>6} ┘ {marks}".rstrip()


def _shown(group: Sequence[float], marked: bool) -> float | None:
    if not group:
        return None
    broken = [v for v in group if not math.isfinite(v)]
    return math.inf if broken else max(group) if marked else median(group)


def _episode(one: Explained) -> Iterator[str]:
    yield headed(one)
    for name, words in told(one):
        yield from _hanging(f"  {name:6}", words)


def headed(one: Explained) -> str:
    """What happened to the loss, and when."""
    worst = "not finite" if one.loss_worst is None else significant(one.loss_worst, 3)
    before = significant(one.loss_before, 3)
    match one.kind:
        case "plateau":
            return f"plateau from update {one.onset:,}: the loss stays at {worst}"
        case "spike":
            return f"spike at update {one.onset:,}: {before} to {worst}, back at update {one.end:,}"
        case _:
            return f"rise from update {one.onset:,}: {before} to {worst}, and it did not come back"


def told(one: Explained) -> list[tuple[str, str]]:
    """Why, where, by what evidence, and what to try, each with its name; without what is not known."""
    rows = [("cause", f"{one.cause} — {one.title}"), ("where", one.place), ("seen", "; ".join(one.evidence))]
    rows += [("try", one.attempt)]
    return [(name, words) for name, words in rows if words]


def _hanging(head: str, words: str) -> list[str]:
    return wrap(words, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
