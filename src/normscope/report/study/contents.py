"""What the page of a study shows, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["reproduced", "not reproduced", "reproduced under conditions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One statement, what was found, and whether that bears it out."""

    name: str
    """A short handle, such as "Lemma 2, Pre-LN, lower bound"."""
    statement: str
    source: str
    """Where it is made: paper and equation, or "corrected"."""
    found: str
    """What was measured, in numbers that stand in the study's data."""
    verdict: Verdict
    conditions: str = ""
    """Under which it holds. Raises ValueError unless given for "reproduced under conditions", and only there."""

    def __post_init__(self) -> None:
        if (self.verdict == "reproduced under conditions") != bool(self.conditions):
            raise ValueError(f"{self.name}: give conditions with that verdict, and with no other")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFigure:
    """A picture: `name` is its file's, without the ending; `wide` where it needs the page's whole width."""

    name: str
    title: str
    caption: str
    svg: str
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """Cells are text or numbers; numbers are aligned and shown with four digits."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPage:
    """Everything the page says; every number of it stands in the study's data."""

    title: str
    question: str
    """What the study asks, in one or two sentences."""
    created: str
    made_by: str
    """Version, source and commit of the program."""
    caution: str = ""
    """What a reader must know before the verdicts, such as that they mean nothing; empty where there is nothing."""
    conditions: Sequence[tuple[str, str]]
    """How it was measured: gradient normalisation, logarithm, tokens, seeds and their spread, model, data."""
    claims: Sequence[Claim]
    figures: Sequence[StudyFigure]
    tables: Sequence[StudyTable]
    commands: Sequence[str]
    environment: Sequence[tuple[str, str]]
