"""The tables that a list of claims makes of its rows, on a study's page and in Markdown."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from normscope.report.words import Tone

from .listing import NOT_RUN, ClaimRow, tally
from .page import Link, Marked, StudyTable, TableCell, table_lines

COLUMNS = ("place", "claim", "verdict", "published", "tested", "found", "study")


def grouped(rows: Sequence[ClaimRow], groups: Mapping[str, str]) -> dict[str, list[ClaimRow]]:
    """Rows by whose their claims are, with their counts: "The paper's own claims, 50: 14
    reproduced, …".

    groups: by whose a claim is, what all of them are called.
    """
    found = {}
    for whose, words in groups.items():
        own = [row for row in rows if row.listed.whose == whose]
        if own:
            found[f"{words}, {len(own)}: {tally(own)}"] = own
    return found


def tables(groups: Mapping[str, Sequence[ClaimRow]], results: Path, out: Path) -> list[StudyTable]:
    """One for each group; each claim links to the reading of the study that measured it, from a
    page in `out`.
    """
    made = []
    for title, rows in groups.items():
        cells = [_cells(row, results, out) for row in rows]
        made.append(StudyTable(title=title, columns=COLUMNS, rows=cells, prose=True))
    return made


def _cells(row: ClaimRow, results: Path, out: Path) -> list[TableCell]:
    one = row.listed
    verdict = Marked(
        row.verdict_words, Tone.PLAIN if row.verdict is None else row.verdict.tone, row.where
    )
    measured = _reading(row, results, out) if row.found else "–"
    claimed: list[TableCell] = [one.place, one.statement, verdict, one.published]
    return [*claimed, row.tested or "nothing", row.found or row.command, measured]


def conditions(rows: Sequence[ClaimRow], results: Path, out: Path) -> StudyTable:
    """Lists what each study that has results measured on, once for all of its claims."""
    by_study = {row.listed.study: row for row in rows if row.found}
    return StudyTable(
        title="Conditions: scale, data and seeds of each study",
        columns=("study", "conditions"),
        rows=[[_reading(row, results, out), row.conditions] for row in by_study.values()],
        prose=True,
    )


def _reading(row: ClaimRow, results: Path, out: Path) -> TableCell:
    """Returns a link to the study's reading, relative to `out`; its name where the results have no
    reading, as those in the package.
    """
    name = row.listed.study
    reading = results / name / "README.md"
    if not reading.is_file():
        return name
    return Link(name, Path(os.path.relpath(reading, out)).as_posix())


def markdown(heading: str, tables: Sequence[StudyTable]) -> str:
    """The same tables for readers of the repository, under the heading and what it says."""
    lines = [heading]
    for one in tables:
        written = [_written_row(row) for row in one.rows]
        lines += ["", f"## {one.title}", "", *table_lines(one.columns, written)]
    return "\n".join(lines) + "\n"


def _written_row(row: Sequence[TableCell]) -> list[str]:
    """Writes the cells of a row; a bar in one would end its cell."""
    return [_written(cell).replace("|", "&#124;") for cell in row]


def _written(cell: TableCell) -> str:
    match cell:
        case Link(text=text, address=target):
            return f"[{text}]({target})"
        case Marked(text=text, note=note):
            return f"**{text}**{f' ({note})' if note else ''}"
    return str(cell)


def not_run(found: Sequence[ClaimRow], results: Path) -> str:
    """Returns the studies without results, and the places of what no study has measured yet."""
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
