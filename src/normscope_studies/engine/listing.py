"""The claims of a text in one list, each with what the results of the studies say of it.

The list is a TOML file. A study judges what it tested, which may be less than what is claimed; what
the list says beside decides what that leaves of the claim.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from normscope.errors import UserError
from normscope.limits.reading import read_json

from .judging import Verdict
from .study import TRIAL

NOT_RUN = "not run"
HELD = "held by a test"
NOT_TESTED = "not tested"
"""The words for a claim without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBy:
    """A study's folder of results."""

    command: str
    """The command that makes them."""
    conditions: Sequence[str]
    """The conditions that it states and that are told with a claim; all where it states none of
    these.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedClaim:
    """A claim, where it is made, and where it is measured."""

    place: str
    statement: str
    published: str
    """The value or order that is claimed."""
    whose: Literal["the paper", "ours", "digests", "the memo", "its sources", "open"] = "the paper"
    """Ours are forms that correct the text's; digests are what summaries of the paper say in its
    place. Of the memo, its sources' are what it takes from them, as they state it, and open is what
    it asks.
    """
    tested: str = ""
    """The statement that was tested, where that is less than what is claimed, such as a direction
    where a number is published; else the study's own statement says it.
    """
    part: str = ""
    """The part of the claim that the study tests, such as one direction of one corpus where all
    tasks are claimed: borne out, the claim is reproduced in that part.
    """
    least_bleu: float = 0.0
    """The BLEU that the best of the study's configurations must reach before its trainings say
    anything of this claim, for claims on BLEU.
    """
    section: str
    """The heading under which the quotes stand, as far as it tells it from others."""
    quotes: Sequence[str]
    study: str = ""
    """The folder of its results; empty where no study can state it."""
    claim: str = ""
    """The name that the claim has in these results; empty where no study states it yet."""
    test: str = ""
    """The test in this repository that holds it, of what follows from definitions alone."""
    untested: str = ""
    """The reason why nothing here tests it."""
    text: str = "paper/xiong2020.md"
    """The text in which the quotes stand, such as the paper, or the notes on it."""
    note: str = ""
    """The number of the note on this claim, such as "2.5"."""
    command: str = ""
    """The command that measures it, where that is not the study's own."""


@cache
def claims_listed(file: Path) -> tuple[Sequence[ListedClaim], Mapping[str, MeasuredBy]]:
    """Returns all claims of a list in its order, and by folder the results that they are looked up
    in.

    What the list's table `every` holds is so of each claim that says nothing else.
    """
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    every = table.get("every", {})
    claims = [ListedClaim(**every | one) for one in table["claims"]]
    return claims, {name: MeasuredBy(**one) for name, one in table["studies"].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """A claim beside what was found."""

    listed: ListedClaim
    command: str
    tested: str = ""
    """The statement that was tested, with what would have been too far off; empty where it was not
    run.
    """
    found: str = ""
    """The finding in the words and numbers of the study's data, with their intervals; empty where
    it was not run.
    """
    conditions: str = ""
    """The conditions under which it was measured: scale, data, model, seeds."""
    verdict: Verdict | None = None
    """The verdict; None where it was not run."""
    where: str = ""
    """The settings in which the claim holds and those in which it does not; empty where all
    agree.
    """

    @property
    def verdict_words(self) -> str:
        unjudged = HELD if self.listed.test else NOT_TESTED if self.listed.untested else NOT_RUN
        return unjudged if self.verdict is None else str(self.verdict)


def rows(
    claims: Sequence[ListedClaim], studies: Mapping[str, MeasuredBy], results: Path
) -> list[ClaimRow]:
    """Returns one for each claim of the list. results: a folder with a folder for each study.

    Raises UserError where a study's results are damaged, or do not hold a claim that the list says
    they hold.
    """
    read = {name: _read(results / name / "results.json") for name in studies}
    return [
        _row(one, studies[one.study], read[one.study], results / one.study)
        if one.study
        else ClaimRow(listed=one, tested=one.tested, command=one.test or one.untested)
        for one in claims
    ]


def _row(
    one: ListedClaim, study: MeasuredBy, data: Mapping[str, Any] | None, folder: Path
) -> ClaimRow:
    command = one.command or study.command
    if data is None or not one.claim:
        return ClaimRow(listed=one, command=command)
    try:
        claim = next(claim for claim in data["claims"] if claim["name"] == one.claim)
        verdict, where = _verdict(one, claim, data)
        return ClaimRow(
            listed=one,
            tested=one.tested or str(claim["statement"]),
            found=str(claim["found"]),
            conditions=_conditions(study, data),
            verdict=verdict,
            where=where,
            command=command,
        )
    except StopIteration:
        raise UserError(
            f"{folder}: its results hold no claim {one.claim!r}; make them again: {study.command}"
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder}: its results are not those of a study ({error!r}); make them: "
            f"{study.command}"
        ) from error


def _verdict(
    one: ListedClaim, claim: Mapping[str, Any], data: Mapping[str, Any]
) -> tuple[Verdict, str]:
    """Returns the verdict on a claim of the list, and where it holds, from what the study judged.

    The study judges what it tested. That may be a part of what is claimed, or trainings in which
    it could not be seen either way.
    """
    verdict, where = Verdict(claim["verdict"]), str(claim["conditions"])
    if data.get("scale") == TRIAL:
        return Verdict.TOO_SMALL, f"scale {TRIAL}"
    if one.least_bleu:
        best = _best_bleu(data)
        if best < one.least_bleu:
            return Verdict.TOO_SMALL, f"BLEU {best:.1f} at the best, {one.least_bleu:g} asked for"
    if one.part and verdict in (Verdict.REPRODUCED, Verdict.UNDER_CONDITIONS):
        return Verdict.IN_PART, "; ".join(filter(None, [one.part, where]))
    return verdict, where


def _best_bleu(data: Mapping[str, Any]) -> float:
    """Returns the highest mean over seeds of the last BLEU, of all configurations."""
    return max(fmean(one["last_bleu"]) for one in data["configurations"])


def _conditions(study: MeasuredBy, data: Mapping[str, Any]) -> str:
    stated = data["conditions"]
    told = [key for key in study.conditions if key in stated] or list(stated)
    # Results of the first version do not say their scale.
    scale = [f"scale: {data['scale']}"] if data.get("scale") else []
    return "; ".join([*scale, *(f"{key}: {stated[key]}" for key in told)])


def _read(file: Path) -> Mapping[str, Any] | None:
    """Reads results; None where there are none."""
    if not file.is_file():
        return None
    try:
        found = read_json(file)
    except (ValueError, OSError) as error:
        raise UserError(
            f"{file} cannot be read ({error}); make the study's results again"
        ) from error
    return found if isinstance(found, dict) else {}


_ORDER = (*map(str, Verdict), HELD, NOT_RUN, NOT_TESTED)


def counts(rows: Sequence[ClaimRow]) -> dict[str, int]:
    """Counts claims by verdict, in the order in which verdicts are listed."""
    found = Counter(row.verdict_words for row in rows)
    return {verdict: found[verdict] for verdict in _ORDER}


def tally(rows: Sequence[ClaimRow]) -> str:
    """ "14 reproduced, 8 undecided, 12 not run"."""
    return ", ".join(f"{count} {verdict}" for verdict, count in counts(rows).items() if count)
