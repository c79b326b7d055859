"""The claims of the paper, each in a row beside what the studies found of it."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from normscope.errors import UserError
from normscope.evidence.judging import Verdict
from normscope.limits.reading import read_json

_FILE = Path(__file__).with_name("claims.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredBy:
    """A study's folder of results."""

    command: str
    """That makes them."""
    conditions: Sequence[str]
    """Which of the conditions that it states are told with a claim; all where it states none of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedClaim:
    """A claim, where it is made, and where it is measured."""

    place: str
    statement: str
    published: str
    """The value or order that is claimed."""
    whose: Literal["the paper", "ours", "digests"] = "the paper"
    """Ours are forms that correct the paper's; digests are what summaries of it say in its place."""
    tested: str = ""
    """What was tested, where that is less than what is claimed, such as a direction where a number is published."""
    section: str
    """The heading under which the quotes stand, as far as it tells it from others."""
    quotes: Sequence[str]
    study: str
    """The folder of its results."""
    claim: str
    """The name that the claim has in these results; empty where no study states it yet."""
    text: str = "paper/xiong2020.md"
    """The text in which the quotes stand: the paper, or the notes on it."""
    note: str = ""
    """The number of the note on this claim, such as "2.5"."""
    command: str = ""
    """What measures it, where that is not the study's own command."""


@cache
def listed() -> tuple[Sequence[ListedClaim], Mapping[str, _MeasuredBy]]:
    """All claims in the paper's order, and by folder the results that they are looked up in."""
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return [ListedClaim(**one) for one in table["claims"]], {
        name: _MeasuredBy(**one) for name, one in table["studies"].items()
    }


NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """A claim beside what was found."""

    listed: ListedClaim
    found: str
    """In the words and numbers of the study's data, with their intervals; empty where it was not run."""
    conditions: str
    """Under which it was measured: scale, data, model, seeds."""
    verdict: Verdict | None
    """None where it was not run."""
    where: str
    """In which settings the claim holds and in which it does not; empty where all agree."""
    command: str

    @property
    def verdict_words(self) -> str:
        return NOT_RUN if self.verdict is None else str(self.verdict)


def rows(claims: Sequence[ListedClaim], studies: Mapping[str, _MeasuredBy], results: Path) -> list[ClaimRow]:
    """One for each claim of the list. results: a folder with a folder for each study.

    Raises UserError where a study's results are damaged, or do not hold a claim that the list says they hold.
    """
    read = {name: _read(results / name / "results.json") for name in studies}
    return [_row(one, studies[one.study], read[one.study], results / one.study) for one in claims]


def _row(one: ListedClaim, study: _MeasuredBy, data: Mapping[str, Any] | None, folder: Path) -> ClaimRow:
    command = one.command or study.command
    if data is None or not one.claim:
        return ClaimRow(listed=one, found="", conditions="", verdict=None, where="", command=command)
    try:
        claim = next(claim for claim in data["claims"] if claim["name"] == one.claim)
        return ClaimRow(
            listed=one,
            found=str(claim["found"]),
            conditions=_conditions(study, data),
            verdict=Verdict(claim["verdict"]),
            where=str(claim["conditions"]),
            command=command,
        )
    except StopIteration:
        raise UserError(
            f"{folder}: its results hold no claim {one.claim!r}; make them again: {study.command}"
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder}: its results are not those of a study ({error!r}); make them: {study.command}"
        ) from error


def _conditions(study: _MeasuredBy, data: Mapping[str, Any]) -> str:
    stated = data["conditions"]
    told = [key for key in study.conditions if key in stated] or list(stated)
    # Results of the first version do not say their scale.
    scale = [f"scale: {data['scale']}"] if data.get("scale") else []
    return "; ".join([*scale, *(f"{key}: {stated[key]}" for key in told)])


def _read(file: Path) -> Mapping[str, Any] | None:
    """None where there are no results."""
    if not file.is_file():
        return None
    try:
        found = read_json(file)
    except (ValueError, OSError) as error:
        raise UserError(f"{file} cannot be read ({error}); make the study's results again") from error
    return found if isinstance(found, dict) else {}
