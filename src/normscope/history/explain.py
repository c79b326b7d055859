"""A history explained, in values and on one screen: every episode's onset, place, cause and what to
try.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from textwrap import wrap
from typing import Any

from ..doctor.result import Severity
from ..report.plain import plain_values
from ..report.words import counted, joined, printable, significant, sparkline
from .beside import Beside, beside_words
from .episodes import UNKNOWN, Episode, EpisodeKind, episodes
from .flat import Standing, flat_words, level_words, what_would_tell
from .patterns import PATTERNS
from .places import first_place
from .record import History, LoggedSeries
from .signs import signs

OUTPUT = "the output layer"
EVERYWHERE = "no sub-layer leads the others"
NOT_RECORDED = "not recorded"
_STAGES_OWN = ("flat", "standing", "needs_cause")
"""Fields of an episode that no reader is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of a history."""

    history: History
    episodes: tuple[Episode, ...]
    good: Beside | None = None
    """The same training beside a good one, where one was named."""

    @property
    def severity(self) -> Severity | None:
        """A spike that came back is worth knowing, what did not come back is a warning; None
        without an episode.
        """
        kinds = {one.kind for one in self.episodes}
        harmless = kinds <= {EpisodeKind.SPIKE, EpisodeKind.NOTE}
        return None if not kinds else Severity.INFO if harmless else Severity.WARNING

    def to_json(self) -> dict[str, Any]:
        """Returns the explanation as plain values, with the curve of the loss, null where it was
        not finite.
        """
        history = self.history
        told: dict[str, Any] = {
            "source": history.source,
            "updates": history.last_update,
            "read": history.read,
            "left_out": history.left_out,
            "episodes": [plain_values(one, without=_STAGES_OWN) for one in self.episodes],
            "loss": {"updates": history.loss.updates, "nats": history.loss.values},
        }
        if self.good is not None:
            told["baseline"] = self.good.to_json()
        found: dict[str, Any] = plain_values(told)
        return found


def explain(history: History) -> Explanation:
    """Explains every event of the history by the first known pattern that fits."""
    found = (_explained(history, one) for one in episodes(history))
    kept = [told for one in found if (told := _told(history, one)) is not None]
    return Explanation(history=history, episodes=(*kept, *signs(history)))


def _told(history: History, episode: Episode) -> Episode | None:
    """A plateau that neither its level nor a cause proves is a note where its level leaves it open,
    and nothing to tell of where the model had learned before.
    """
    if not episode.needs_cause or episode.cause != UNKNOWN:
        return episode
    return _flat_note(history, episode) if episode.standing is Standing.UNKNOWN else None


FLAT_UNKNOWN = "flat-cause-unknown"
FLAT_ABOVE = "flat-above-baseline"
_LEARNED_MORE = 0.9
"""Of a flat loss: below this share of it a good training has learned what this one has not."""


def beside_good(explanation: Explanation, good: Beside) -> Explanation:
    """The same beside a good training, which says what a flat loss could have come to."""
    told = tuple(_beside_good(one, good) for one in explanation.episodes)
    return replace(explanation, episodes=told, good=good)


def _beside_good(episode: Episode, good: Beside) -> Episode:
    flat = episode.flat
    if episode.cause != FLAT_UNKNOWN or flat is None:
        return episode
    if good.good_loss >= _LEARNED_MORE * flat.level_nats:
        return episode
    reached = (
        f"the good training stands at {significant(good.good_loss, 3)} at update "
        f"{good.last_common:,}"
    )
    return replace(
        episode,
        kind=EpisodeKind.PLATEAU,
        cause=FLAT_ABOVE,
        title="flat above what the good training learned",
        evidence=(*episode.evidence, reached),
        attempt=(
            "take back what differs from the good training, the first difference first; where "
            "nothing was meant to differ, train again with a lower rate or a longer warm-up, and "
            "name the model beside the log (`normscope doctor MODEL --log LOG`)"
        ),
    )


def _flat_note(history: History, episode: Episode) -> Episode:
    """Returns the note that a loss is flat, with what would show whether it has learned."""
    assert episode.flat is not None
    return replace(
        episode,
        kind=EpisodeKind.NOTE,
        cause=FLAT_UNKNOWN,
        title="flat, cause not known: all may be learned, or nothing",
        evidence=(
            flat_words(episode.flat),
            level_words(history.recipe, episode.flat.level_nats),
        ),
        missing=(),
        attempt=what_would_tell(history, episode.flat),
    )


def _explained(history: History, episode: Episode) -> Episode:
    missing: list[str] = []
    for known in PATTERNS:
        found = known.judge(history, episode)
        if found.evidence:
            episode = replace(episode, cause=known.id, title=known.title, attempt=known.attempt)
            return replace(
                episode, place=_place(history, episode, known.where), evidence=found.evidence
            )
        missing += found.missing
    needs = tuple(dict.fromkeys(missing))
    attempt = (
        f"record {'; '.join(needs)}, and train again from before it"
        if needs
        else "look at the data and the code"
    )
    return replace(episode, place=_place(history, episode), missing=needs, attempt=attempt)


def _place(history: History, episode: Episode, where: str = "sub-layer") -> str:
    if not history.sublayers:
        return NOT_RECORDED
    if where == "output layer":
        return OUTPUT
    leading = first_place(history, episode) if where == "sub-layer" else None
    return EVERYWHERE if leading is None else leading.sublayer


WIDTH, MOST_LINES = 96, 38
_MARK = "▲"
_COLUMNS = 64


def page(explanation: Explanation, width: int = WIDTH) -> list[str]:
    """Returns lines of at most `width` columns, under forty in all; episodes for which there is no
    room are counted.
    """
    history, found = explanation.history, explanation.episodes
    lines = [*wrap(history_head(explanation), width)]
    lines += wrap(reading_words(history), width, subsequent_indent="  ")
    if explanation.good is not None:
        for words in beside_words(explanation.good):
            lines += wrap(words, width, subsequent_indent="  ")
    lines += [""]
    onsets = [one.onset for one in found]
    course = _course(history.loss, onsets, min(_COLUMNS, width - 16))
    lines += ["  " + line for line in course]
    for number, one in enumerate(found):
        part = ["", *wrap(episode_head(one), width)]
        for name, words in episode_rows(one):
            part += hanging(f"  {name:6}", words, width)
        if len(lines) + len(part) > MOST_LINES - 2:
            left = found[number:]
            starts = joined([f"{other.onset:,}" for other in left[:8]]) + (
                " …" if len(left) > 8 else ""
            )
            more = f"and {counted(len(left), 'more event')}, from update {starts}; --json has all"
            return [*lines, "", *wrap(more, width)]
        lines += part
    return lines


_MOST_BRIEF = 6
"""Episodes of five lines each, below forty in all with what stands around them."""


def brief_lines(explanation: Explanation) -> list[str]:
    """The same for programs and agents: plain lines of a name and what is said, none wrapped,
    under forty in all.
    """
    lines = [f"training: {history_head(explanation)}"]
    if read := reading_words(explanation.history):
        lines.append(read)
    if explanation.good is not None:
        lines += beside_words(explanation.good)
    shown = explanation.episodes[:_MOST_BRIEF]
    for one in shown:
        lines.append(f"event: {episode_head(one)}")
        lines += [f"{name}: {words}" for name, words in episode_rows(one)]
    left = len(explanation.episodes) - len(shown)
    if left:
        lines.append(f"and {counted(left, 'more event')}: --json - has all")
    return [printable(" ".join(line.split())) for line in lines]


def history_head(explanation: Explanation) -> str:
    """Returns how many events there are, over which updates, and what was read."""
    history, found = explanation.history, explanation.episodes
    flat = any(one.cause == FLAT_UNKNOWN for one in found)
    beside = sum(one.kind in (EpisodeKind.SIGN, EpisodeKind.NOTE) for one in found)
    if len(found) > beside:
        said = counted(len(found) - beside, "event")
    elif flat:
        said = "flat, cause not known"
    else:
        said = "no spike and no plateau"
    beside -= flat
    said += f", {counted(beside, 'sign')} beside the loss" if beside else ""
    return f"{said} — loss over {counted(history.last_update, 'update')}, {history.source}"


def reading_words(history: History) -> str:
    """Returns what was read of a log, and what was left out; "" where that is not known."""
    if not history.read:
        return ""
    left_out = "; ".join(history.left_out) or "nothing"
    return f"read: {'; '.join(history.read)}. Left out: {left_out}"


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
    letters = iter(sparkline([value for value in shown if value is not None]))
    yield (
        f"loss {significant(high, 3):>6} ┐ "
        f"{''.join(' ' if value is None else next(letters) for value in shown)}"
    )
    marks = "".join(_MARK if at in marked else " " for at in range(columns)).rstrip()
    yield f"     {significant(low, 3):>6} ┘ {marks}".rstrip()


def _shown(group: Sequence[float], marked: bool) -> float | None:
    if not group:
        return None
    return (
        math.inf if not all(map(math.isfinite, group)) else max(group) if marked else median(group)
    )


def episode_head(one: Episode) -> str:
    """Returns what happened to the loss, and when."""
    worst = significant(one.loss_worst, 3) if math.isfinite(one.loss_worst) else "not finite"
    before = (
        significant(one.loss_before, 3) if math.isfinite(one.loss_before) else "no number before"
    )
    match one.kind:
        case "plateau" if one.flat is None:
            return f"plateau from update {one.onset:,}: the loss hardly falls, at {worst}"
        case "plateau":
            return f"plateau from update {one.onset:,}: the loss stays at {worst}"
        case "sign" | "note":
            return f"{one.kind} at update {one.onset:,}: {one.title}"
        case "spike":
            return f"spike at update {one.onset:,}: {before} to {worst}, back at update {one.end:,}"
        case _:
            return f"rise from update {one.onset:,}: {before} to {worst}, and it did not come back"


def episode_rows(one: Episode) -> list[tuple[str, str]]:
    """Returns the cause, the place, the evidence, and what to try, each with its name; without
    those that are not known.
    """
    cause, seen = f"{one.cause} — {one.title}", "; ".join(one.evidence)
    rows = [("cause", cause), ("where", one.place), ("seen", seen), ("try", one.attempt)]
    return [(name, words) for name, words in rows if words]


def hanging(head: str, words: str, width: int) -> list[str]:
    """Words beside a heading, wrapped to lines of `width` columns that begin below each other."""
    return wrap(words, width, initial_indent=head, subsequent_indent=" " * len(head))
