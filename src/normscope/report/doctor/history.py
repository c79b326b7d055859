"""What a page shows of a training's history: ready to be set, because what found it is not known here."""

from dataclasses import dataclass

from ..svg import Picture
from ..words import Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeWords:
    """One spike, rise or plateau in words."""

    head: str
    tone: Tone
    rows: tuple[tuple[str, str], ...]
    """Cause, place, evidence and what to try, each with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySection:
    """The section of a page."""

    head: str
    episodes: tuple[EpisodeWords, ...]
    pictures: tuple[Picture, ...]
