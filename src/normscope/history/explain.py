"""A history explained: every episode with its onset, its place, its cause and what to try."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..report.doctor.contents import Severity
from .causes.judged import Cause
from .causes.registry import CAUSES
from .episodes import Episode, Kind, episodes
from .places import Place, first_place
from .record import History

UNKNOWN = "unknown"
OUTPUT = "the output layer"
EVERYWHERE = "no sub-layer leads the others"
NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One episode, as values that a terminal, a page or a JSON file can show."""

    kind: str
    """spike, rise or plateau."""
    onset: int
    end: int | None
    loss_before: float
    loss_worst: float | None
    """None where it was not finite."""
    cause: str
    """The id of a known pattern, or "unknown"."""
    title: str
    place: str
    """The sub-layer that left its course first, the output layer, or why none is named."""
    evidence: tuple[str, ...]
    missing: tuple[str, ...]
    """What would have to be recorded to decide; of a cause that is known, nothing."""
    attempt: str
    """What to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a history says."""

    history: History
    episodes: tuple[Explained, ...]

    @property
    def severity(self) -> Severity | None:
        """A spike that came back is worth knowing, what did not come back is a warning; None without an episode."""
        kinds = {one.kind for one in self.episodes}
        if not kinds:
            return None
        return Severity.INFO if kinds == {Kind.SPIKE.value} else Severity.WARNING

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
    kept = (words for one, words in found if not one.needs_cause or words.cause != UNKNOWN)
    return Explanation(history=history, episodes=tuple(kept))


def _explained(history: History, episode: Episode) -> Explained:
    judged = [(cause, cause.judge(history, episode)) for cause in CAUSES]
    fitting = next(((cause, found) for cause, found in judged if found.fits), None)
    missing = tuple(dict.fromkeys(need for _, found in judged for need in found.missing))
    place = first_place(history, episode)
    worst = episode.loss_worst if math.isfinite(episode.loss_worst) else None
    return Explained(
        kind=episode.kind.value,
        onset=episode.onset,
        end=episode.end,
        loss_before=episode.loss_before,
        loss_worst=worst,
        cause=UNKNOWN if fitting is None else fitting[0].id,
        title="none of the known patterns is borne out" if fitting is None else fitting[0].title,
        place=_place(history, None if fitting is None else fitting[0], place),
        evidence=() if fitting is None else fitting[1].evidence,
        missing=missing if fitting is None else (),
        attempt=_record(missing) if fitting is None else fitting[0].attempt,
    )


def _place(history: History, cause: Cause | None, place: Place | None) -> str:
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
