"""A history explained, in values and on one screen: every episode's onset, place, cause and what to try."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from textwrap import wrap
from typing import Any

from ..doctor.result import Severity
from ..report.words import BARS, BROKEN, counted, joined, significant
from .episodes import NOTE, SIGN, Episode, EpisodeKind, EpisodeReport, episodes
from .patterns import PATTERNS, Pattern
from .places import LeadingSublayer, first_place
from .record import History, LoggedSeries
from .signs import signs

UNKNOWN = "unknown"
OUTPUT = "the output layer"
EVERYWHERE = "no sub-layer leads the others"
NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a history says."""

    history: History
    episodes: tuple[EpisodeReport, ...]

    @property
    def severity(self) -> Severity | None:
        """A spike that came back is worth knowing, what did not come back is a warning; None without an episode."""
        kinds = {one.kind for one in self.episodes}
        if not kinds:
            return None
        return Severity.INFO if kinds <= {EpisodeKind.SPIKE.value, NOTE} else Severity.WARNING

    def to_json(self) -> dict[str, Any]:
        """As plain values; the curve of the loss with them, null where it was not finite."""
        loss = self.history.loss
        return {
            "source": self.history.source,
            "updates": self.history.last_update,
            "episodes": [asdict(one) for one in self.episodes],
            "loss": {
                "updates": list(loss.updates),
                "nats": [value if math.isfinite(value) else None for value in loss.values],
            },
        }


def explain(history: History) -> Explanation:
    """Every episode of the history, explained by the first known pattern that fits."""
    found = ((one, _explained(history, one)) for one in episodes(history))
    kept = [words for one, words in found if not one.needs_cause or words.cause != UNKNOWN]
    return Explanation(history=history, episodes=(*kept, *signs(history)))


def _explained(history: History, episode: Episode) -> EpisodeReport:
    judged = [(cause, cause.judge(history, episode)) for cause in PATTERNS]
    fitting = next(((cause, found) for cause, found in judged if found.fits), None)
    missing = tuple(dict.fromkeys(need for _, found in judged for need in found.missing))
    place = first_place(history, episode)
    worst = episode.loss_worst if math.isfinite(episode.loss_worst) else None
    return EpisodeReport(
        kind=episode.kind.value,
        onset=episode.onset,
        end=episode.end,
        loss_before=episode.loss_before if math.isfinite(episode.loss_before) else None,
        loss_worst=worst,
        cause=UNKNOWN if fitting is None else fitting[0].id,
        title="none of the known patterns is borne out" if fitting is None else fitting[0].title,
        place=_place(history, None if fitting is None else fitting[0], place),
        evidence=() if fitting is None else fitting[1].evidence,
        missing=missing if fitting is None else (),
        attempt=_record(missing) if fitting is None else fitting[0].attempt,
    )


def _place(history: History, cause: Pattern | None, place: LeadingSublayer | None) -> str:
    if not history.sublayers:
        return NOT_RECORDED
    if cause is not None and cause.where == "output layer":
        return OUTPUT
    if place is None or (cause is not None and cause.where == "whole model"):
        return EVERYWHERE
    return place.sublayer


def _record(missing: Sequence[str]) -> str:
    return (
        f"record {'; '.join(missing)}, and train again from before it" if missing else "look at the data and the code"
    )


WIDTH, MOST_LINES = 96, 38
_MARK = "▲"
_COLUMNS = 64


def page(explanation: Explanation, width: int = WIDTH) -> list[str]:
    """Lines of at most `width` columns, under forty in all; episodes for which there is no room are counted."""
    history, found = explanation.history, explanation.episodes
    lines = [*wrap(history_head(explanation), width), ""]
    lines += ["  " + line for line in _course(history.loss, [one.onset for one in found], min(_COLUMNS, width - 16))]
    for number, one in enumerate(found):
        part = ["", *_episode(one, width)]
        if len(lines) + len(part) > MOST_LINES - 2:
            left = found[number:]
            starts = joined([f"{other.onset:,}" for other in left[:8]]) + (" …" if len(left) > 8 else "")
            lines += [
                "",
                *wrap(f"and {counted(len(left), 'more episode')}, from update {starts}; --json has all", width),
            ]
            break
        lines += part
    return lines


def history_head(explanation: Explanation) -> str:
    """How many episodes there are, over which updates, and what was read."""
    history, found = explanation.history, explanation.episodes
    beside = sum(one.kind in (SIGN, NOTE) for one in found)
    said = counted(len(found) - beside, "episode") if len(found) > beside else "no spike and no plateau"
    said += f", {counted(beside, 'sign')} beside the loss" if beside else ""
    return f"{said} — loss over {counted(history.last_update, 'update')}, {history.source}"


def _course(loss: LoggedSeries, onsets: Sequence[int], most: int) -> Iterator[str]:
    """The loss in letters, and a line with a mark below the letter of each onset."""
    if not loss:
        return
    first, last = loss.updates[0], loss.updates[-1]
    columns = min(most, len(loss.updates))

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


def _episode(one: EpisodeReport, width: int) -> Iterator[str]:
    yield from wrap(episode_head(one), width)
    for name, words in episode_rows(one):
        yield from hanging(f"  {name:6}", words, width)


def episode_head(one: EpisodeReport) -> str:
    """What happened to the loss, and when."""
    worst = "not finite" if one.loss_worst is None else significant(one.loss_worst, 3)
    before = "no number before" if one.loss_before is None else significant(one.loss_before, 3)
    match one.kind:
        case "plateau":
            return f"plateau from update {one.onset:,}: the loss stays at {worst}"
        case "sign" | "note":
            return f"{one.kind} at update {one.onset:,}: {one.title}"
        case "spike":
            return f"spike at update {one.onset:,}: {before} to {worst}, back at update {one.end:,}"
        case _:
            return f"rise from update {one.onset:,}: {before} to {worst}, and it did not come back"


def episode_rows(one: EpisodeReport) -> list[tuple[str, str]]:
    """Why, where, by what evidence, and what to try, each with its name; without what is not known."""
    rows = [("cause", f"{one.cause} — {one.title}"), ("where", one.place), ("seen", "; ".join(one.evidence))]
    rows += [("try", one.attempt)]
    return [(name, words) for name, words in rows if words]


def hanging(head: str, words: str, width: int) -> list[str]:
    """Words beside a heading, wrapped to lines of `width` columns that begin below each other."""
    return wrap(words, width, initial_indent=head, subsequent_indent=" " * len(head))
