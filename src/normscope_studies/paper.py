"""Every claim of the paper in one table, each in a row beside what the results of the studies say
of it.
"""

import os
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from normscope.errors import UserError
from normscope.files import write_over
from normscope.limits.kinds import CLAIMS
from normscope.limits.reading import read_json
from normscope.report.words import Tone

from .engine.checks import check_least, settings_of
from .engine.judging import Verdict
from .engine.page import Findings, Link, Marked, StudyTable, TableCell, table_lines
from .engine.pieces import Pieces
from .engine.study import Study, scales

NOT_RUN, HELD, NOT_TESTED = "not run", "held by a test", "not tested"
_FILE = Path(__file__).with_name("paper.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredBy:
    """A study's folder of results."""

    command: str
    """That makes them."""
    conditions: Sequence[str]
    """Which of the conditions that it states are told with a claim; all where it states none of
    these.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedClaim:
    """A claim, where it is made, and where it is measured."""

    place: str
    statement: str
    published: str
    """The value or order that is claimed."""
    whose: Literal["the paper", "ours", "digests"] = "the paper"
    """Ours are forms that correct the paper's; digests are what summaries of it say in its
    place.
    """
    tested: str = ""
    """What was tested, where that is less than what is claimed, such as a direction where a number
    is published; else the study's own statement says it."""
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
    """Why nothing here tests it."""
    text: str = "paper/xiong2020.md"
    """The text in which the quotes stand: the paper, or the notes on it."""
    note: str = ""
    """The number of the note on this claim, such as "2.5"."""
    command: str = ""
    """What measures it, where that is not the study's own command."""


@cache
def listed() -> tuple[Sequence[_ListedClaim], Mapping[str, _MeasuredBy]]:
    """All claims in the paper's order, and by folder the results that they are looked up in."""
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return [_ListedClaim(**one) for one in table["claims"]], {
        name: _MeasuredBy(**one) for name, one in table["studies"].items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClaimRow:
    """A claim beside what was found."""

    listed: _ListedClaim
    command: str
    tested: str = ""
    """What was tested, with what would have been too far off; empty where it was not run."""
    found: str = ""
    """In the words and numbers of the study's data, with their intervals; empty where it was not
    run.
    """
    conditions: str = ""
    """Under which it was measured: scale, data, model, seeds."""
    verdict: Verdict | None = None
    """None where it was not run."""
    where: str = ""
    """In which settings the claim holds and in which it does not; empty where all agree."""

    @property
    def verdict_words(self) -> str:
        unjudged = HELD if self.listed.test else NOT_TESTED if self.listed.untested else NOT_RUN
        return unjudged if self.verdict is None else str(self.verdict)


def rows(
    claims: Sequence[_ListedClaim], studies: Mapping[str, _MeasuredBy], results: Path
) -> list[_ClaimRow]:
    """One for each claim of the list. results: a folder with a folder for each study.

    Raises UserError where a study's results are damaged, or do not hold a claim that the list says
    they hold.
    """
    read = {name: _read(results / name / "results.json") for name in studies}
    return [
        _row(one, studies[one.study], read[one.study], results / one.study)
        if one.study
        else _ClaimRow(listed=one, tested=one.tested, command=one.test or one.untested)
        for one in claims
    ]


def _row(
    one: _ListedClaim, study: _MeasuredBy, data: Mapping[str, Any] | None, folder: Path
) -> _ClaimRow:
    command = one.command or study.command
    if data is None or not one.claim:
        return _ClaimRow(listed=one, command=command)
    try:
        claim = next(claim for claim in data["claims"] if claim["name"] == one.claim)
        return _ClaimRow(
            listed=one,
            tested=one.tested or str(claim["statement"]),
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
            f"{folder}: its results are not those of a study ({error!r}); make them: "
            f"{study.command}"
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
        raise UserError(
            f"{file} cannot be read ({error}); make the study's results again"
        ) from error
    return found if isinstance(found, dict) else {}


COLUMNS = ("place", "claim", "published", "tested", "found", "verdict", "study")
_GROUPS = {
    "the paper": "The paper's own claims",
    "ours": "Corrections of ours",
    "digests": "What summaries of the paper say",
}
"""Claims by whose they are, as their tables are called."""
_ORDER = (*map(str, Verdict), HELD, NOT_RUN, NOT_TESTED)


def counts(rows: Sequence[_ClaimRow]) -> dict[str, int]:
    """By verdict, in the order in which they are counted up."""
    found = Counter(row.verdict_words for row in rows)
    return {verdict: found[verdict] for verdict in _ORDER}


def tally(rows: Sequence[_ClaimRow]) -> str:
    """ "14 reproduced, 8 undecided, 12 not run"."""
    return ", ".join(f"{count} {verdict}" for verdict, count in counts(rows).items() if count)


def groups(rows: Sequence[_ClaimRow]) -> dict[str, list[_ClaimRow]]:
    """By whose they are, with their counts: "The paper's own claims, 50: 14 reproduced, …"."""
    own = {
        words: [row for row in rows if row.listed.whose == whose]
        for whose, words in _GROUPS.items()
    }
    return {f"{words}, {len(some)}: {tally(some)}": some for words, some in own.items() if some}


def tables(rows: Sequence[_ClaimRow], results: Path, out: Path) -> list[StudyTable]:
    """One for each group; each claim links to the reading of the study that measured it, from a
    page in `out`.
    """
    return [
        StudyTable(
            title=title,
            columns=COLUMNS,
            rows=[_cells(row, results, out) for row in some],
            prose=True,
        )
        for title, some in groups(rows).items()
    ]


def _cells(row: _ClaimRow, results: Path, out: Path) -> list[TableCell]:
    one = row.listed
    verdict = Marked(
        row.verdict_words, Tone.PLAIN if row.verdict is None else row.verdict.tone, row.where
    )
    measured: TableCell = Link(one.study, address(row, results, out)) if row.found else "–"
    claimed = [one.place, one.statement, one.published]
    return [*claimed, row.tested or "nothing", row.found or row.command, verdict, measured]


def conditions(rows: Sequence[_ClaimRow], results: Path, out: Path) -> StudyTable:
    """What each study that has results measured on, once for all of its claims."""
    by_study = {row.listed.study: row for row in rows if row.found}
    return StudyTable(
        title="Conditions: scale, data and seeds of each study",
        columns=("study", "conditions"),
        rows=[
            [Link(study, address(row, results, out)), row.conditions]
            for study, row in by_study.items()
        ],
        prose=True,
    )


def address(row: _ClaimRow, results: Path, out: Path) -> str:
    """Of the study's reading, relative to `out`."""
    return Path(os.path.relpath(results / row.listed.study / "README.md", out)).as_posix()


def markdown(rows: Sequence[_ClaimRow], results: Path, out: Path) -> str:
    """The same tables for readers of the repository."""
    lines = [
        "# The paper's claims, one by one",
        "",
        "Made by `normscope study paper` from the data of the other studies. What no result "
        "here has is not run, and has its command. The verdict is of what was tested, which may "
        "be less than what is claimed, such as a direction where a number is published, and says "
        "how far off was allowed.",
    ]
    for one in (*tables(rows, results, out), conditions(rows, results, out)):
        written = ([_written(cell).replace("|", "&#124;") for cell in row] for row in one.rows)
        lines += ["", f"## {one.title}", "", *table_lines(one.columns, written)]
    return "\n".join(lines) + "\n"


def _written(cell: TableCell) -> str:
    match cell:
        case Link(text=text, address=target):
            return f"[{text}]({target})"
        case Marked(text=text, note=note):
            return f"**{text}**{f' ({note})' if note else ''}"
    return str(cell)


def not_run(found: Sequence[_ClaimRow], results: Path) -> str:
    """The studies without results, and the places of what no study has measured yet."""
    left = [row for row in found if row.verdict_words == NOT_RUN]
    missing = sorted(
        {
            row.listed.study
            for row in left
            if not (results / row.listed.study / "results.json").is_file()
        }
    )
    places = [row.listed.place for row in left if row.listed.study not in missing]
    studies = [f"no results of {', '.join(missing)}"] if missing else []
    return "; ".join([*studies, *places]) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PaperConfig:
    """Where the results of the other studies are."""

    results: str = "results"
    """A folder with a folder for each study, as NormScope's repository has it."""
    claims: int = 0
    """The first so many claims; 0 for all."""

    def __post_init__(self) -> None:
        check_least(self, claims=0)


def run(config: _PaperConfig, pieces: Pieces) -> Findings:
    """Raises UserError where there is no folder of results, or where results are damaged."""
    results = Path(config.results)
    if not results.is_dir():
        raise UserError(
            f"no folder of results at {config.results!r}: run this in a clone of NormScope, which "
            "has `results`, or name with --set results=FOLDER one that has a folder for each "
            "study, such as FOLDER/theorem1"
        )
    claims, studies = listed()
    found = rows(claims[: config.claims or None], studies, results)
    # A link starts from where the page is, as it is reached.
    write_over(pieces.folder / "claims.md", markdown(found, results, pieces.folder), CLAIMS)
    return Findings(
        conditions={
            "Source": "Xiong et al. 2020, arXiv:2002.04745; “corrected” is what its proofs bear",
            "Ours": "each study's own words, numbers and intervals, from its results.json",
            "Verdicts": "; ".join(groups(found)),
            "Not run": not_run(found, results),
        },
        claims=[],
        figures=[],
        tables=[*tables(found, results, pieces.folder), conditions(found, results, pieces.folder)],
        data={
            "verdicts": {
                whose: counts([row for row in found if row.listed.whose == whose])
                for whose in dict.fromkeys(row.listed.whose for row in found)
            },
            "rows": [_data(row) for row in found],
        },
        lines=[_counted_line(row) for row in found],
    )


def _data(row: _ClaimRow) -> dict[str, Any]:
    return {
        **settings_of(row.listed, "place", "statement", "published", "whose"),
        "tested": row.tested or None,
        **settings_of(row.listed, "study", "claim"),
        "found": row.found or None,
        "conditions": row.conditions,
        "verdict": row.verdict_words,
        "where": row.where,
        "command": row.command,
    }


def _counted_line(row: _ClaimRow) -> str:
    one = row.listed
    ours = f"  measured: {row.found}" if row.found else f"  {row.verdict_words}: {row.command}"
    return (
        f"{one.place}: {row.verdict_words}\n  claim:    {one.statement} [{one.published}]\n{ours}"
    )


STUDY = Study(
    title="The paper's claims, one by one",
    question=(
        "What does Xiong et al. 2020 claim, where, and with which value; and what came of each "
        "claim when a study measured it?"
    ),
    help="What came of every claim of the paper?",
    scales=scales(_PaperConfig, smoke={"claims": 3}, paper={}),
    run=run,
)
