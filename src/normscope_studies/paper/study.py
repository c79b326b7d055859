"""One page, one table: what the paper claims, and what the studies found."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope.errors import UserError
from normscope.files import write_atomically

from ..engine.page import StudyFigure
from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from . import ABOUT
from .listed import listed
from .page import conditions, counts, markdown, table, tally, verdicts_svg
from .rows import Row, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperConfig:
    """Where the results of the other studies are."""

    results: str = "results"
    """A folder with a folder for each study, as NormScope's repository has it."""
    claims: int = 0
    """The first so many claims; 0 for all."""

    def __post_init__(self) -> None:
        if self.claims < 0:
            raise ValueError(f"claims is a number of claims, or 0 for all; got {self.claims}")


def run(config: PaperConfig, pieces: Pieces) -> Findings:
    """Raises UserError where there is no folder of results, or where results are damaged."""
    results = Path(config.results)
    if not results.is_dir():
        raise UserError(
            f"no folder of results at {config.results!r}: run this in a clone of NormScope, which has `results`, or "
            "name with --set results=FOLDER one that has a folder for each study, such as FOLDER/theorem1"
        )
    claims, studies = listed()
    found = rows(claims[: config.claims or None], studies, results)
    # A link starts from where the page is, as it is reached.
    write_atomically(pieces.folder / "claims.md", markdown(found, results, pieces.folder))
    missing = sorted({row.listed.study for row in found if not (results / row.listed.study / "results.json").is_file()})
    return Findings(
        conditions=[
            (
                "Source",
                "Xiong et al. 2020, arXiv:2002.04745; “corrected” is what its proofs bear",
            ),
            (
                "Ours",
                "each study's own words, numbers and intervals, from its results.json",
            ),
            ("Verdicts", tally(found)),
            ("Not run", f"no results of {', '.join(missing)}" if missing else "every study has results"),
        ],
        claims=[],
        figures=[
            StudyFigure(
                name="verdicts",
                title="Verdicts by study",
                caption="How many claims have which verdict, by the study that measures them.",
                svg=verdicts_svg(found),
                wide=True,
            )
        ],
        tables=[table(found, results, pieces.folder), conditions(found, results, pieces.folder)],
        data={
            "verdicts": {verdict: {"claims": n, "share": n / len(found)} for verdict, n in counts(found).items()},
            "rows": [_data(row) for row in found],
        },
        lines=[_line(row) for row in found],
    )


def _data(row: Row) -> dict[str, Any]:
    one = row.listed
    return {
        "place": one.place,
        "statement": one.statement,
        "published": one.published,
        "study": one.study,
        "claim": one.claim,
        "found": row.found or None,
        "conditions": row.conditions,
        "verdict": row.verdict_words,
        "where": row.where,
        "command": row.command,
    }


def _line(row: Row) -> str:
    one = row.listed
    ours = f"  measured: {row.found}" if row.found else f"  command:  {row.command}"
    return f"{one.place}: {row.verdict_words}\n  claim:    {one.statement} [{one.published}]\n{ours}"


STUDY = Study(
    about=ABOUT,
    scales={
        "smoke": Scale(config=PaperConfig(claims=3), decides=False),
        "cpu": Scale(config=PaperConfig()),
        "paper": Scale(config=PaperConfig()),
    },
    run=run,
)
