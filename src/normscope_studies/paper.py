"""Every claim of the paper in one table, each in a row beside what the results of the studies say
of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope.errors import UserError
from normscope.files import write_over
from normscope.limits.kinds import CLAIMS

from .engine.checks import check_least, settings_of
from .engine.listing import ClaimRow, ListedClaim, MeasuredBy, claims_listed, counts, rows
from .engine.listing_tables import conditions, grouped, markdown, not_run, tables
from .engine.page import Findings, StudyTable
from .engine.pieces import Pieces
from .engine.study import Study, scales

_FILE = Path(__file__).with_name("paper.toml")
_GROUPS = {
    "the paper": "The paper's own claims",
    "ours": "Corrections of ours",
    "digests": "What summaries of the paper say",
}
"""Claims by whose they are, as their tables are called."""
HEADING = """# The paper's claims, one by one

Made by `normscope study paper` from the data of the other studies. What no result here has is not \
run, and has its command. The verdict is of what was tested, which may be less than what is \
claimed, such as a direction where a number is published, and says how far off was allowed."""


def listed() -> tuple[Sequence[ListedClaim], Mapping[str, MeasuredBy]]:
    """All claims in the paper's order, and by folder the results that they are looked up in."""
    return claims_listed(_FILE)


def page_tables(found: Sequence[ClaimRow], results: Path, out: Path) -> list[StudyTable]:
    """One for each group of claims, and one of what the studies measured on; they link from a page
    in `out`.
    """
    return [*tables(grouped(found, _GROUPS), results, out), conditions(found, results, out)]


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
    by_whose = grouped(found, _GROUPS)
    # A link starts from where the page is, as it is reached.
    shown = page_tables(found, results, pieces.folder)
    write_over(pieces.folder / "claims.md", markdown(HEADING, shown), CLAIMS)
    return Findings(
        conditions={
            "Source": "Xiong et al. 2020, arXiv:2002.04745; “corrected” is what its proofs bear",
            "Ours": "each study's own words, numbers and intervals, from its results.json",
            "Verdicts": "; ".join(by_whose),
            "Not run": not_run(found, results),
        },
        claims=[],
        figures=[],
        tables=shown,
        data={
            "verdicts": {
                whose: counts([row for row in found if row.listed.whose == whose])
                for whose in dict.fromkeys(row.listed.whose for row in found)
            },
            "rows": [_data(row) for row in found],
        },
        lines=[_counted_line(row) for row in found],
    )


def _data(row: ClaimRow) -> dict[str, Any]:
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


def _counted_line(row: ClaimRow) -> str:
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
