"""A study that reads the results of others: what came of every claim of one text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope import __version__
from normscope.errors import UserError
from normscope.files import write_over
from normscope.limits.kinds import CLAIMS

from .checks import check_least, settings_of
from .listing import ClaimRow, ListedClaim, MeasuredBy, claims_listed, counts, rows
from .listing_tables import conditions, grouped, markdown, not_run, tables
from .packed import PACKED
from .page import Findings, StudyTable
from .pieces import Pieces
from .planning import StudyPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfig:
    """Says where the results of the other studies are."""

    results: str = ""
    """A folder with a folder for each study, as NormScope's repository has it. By default that is
    the folder `results` of a clone where the command is run in one, and else what the results of
    the repository said when this version was made.
    """
    claims: int = 0
    """The first so many claims; 0 for all."""

    def __post_init__(self) -> None:
        check_least(self, claims=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedText:
    """A text whose claims are listed, and how its page speaks of them."""

    file: Path
    """The list."""
    source: str
    """The text, in words."""
    heading: str
    """The beginning of the page in Markdown; `limits.kinds.CLAIMS` knows it by this."""
    groups: Mapping[str, str]
    """The heading of the claims of one source, by whose they are: one table each."""
    example: str
    """The folder of the results of one of its studies."""

    def listed(self) -> tuple[Sequence[ListedClaim], Mapping[str, MeasuredBy]]:
        """Returns all claims in the text's order, and by folder the results that they are looked up
        in.
        """
        return claims_listed(self.file)

    def page_tables(self, found: Sequence[ClaimRow], results: Path, out: Path) -> list[StudyTable]:
        """Returns one for each group of claims, and one of what the studies measured on; they link
        from a page in `out`.
        """
        own = tables(grouped(found, self.groups), results, out)
        return [*own, conditions(found, results, out)]

    def planned(self, config: ListConfig, pieces: Pieces) -> StudyPlan:
        """Returns that nothing is trained: results are read."""
        return StudyPlan(stages=())

    def run(self, config: ListConfig, pieces: Pieces) -> Findings:
        """Returns the page, and writes `claims.md` beside it.

        Raises UserError where there is no folder of results, or where results are damaged.
        """
        results = self._results(config)
        claims, studies = self.listed()
        found = rows(claims[: config.claims or None], studies, results)
        # A link starts from where the page is, as it is reached.
        shown = self.page_tables(found, results, pieces.folder)
        by_whose: dict[str, list[ClaimRow]] = {}
        for row in found:
            by_whose.setdefault(row.listed.whose, []).append(row)
        write_over(pieces.folder / "claims.md", markdown(self.heading, shown), CLAIMS)
        return Findings(
            conditions={
                "Source": self.source,
                "Ours": f"each study's own words, numbers and intervals, from {_source(results)}",
                "Verdicts": "; ".join(grouped(found, self.groups)),
                "Not run": not_run(found, results),
            },
            claims=[],
            figures=[],
            tables=shown,
            data={
                "verdicts": {whose: counts(own) for whose, own in by_whose.items()},
                "rows": [_data(row) for row in found],
            },
            lines=[_counted_line(row) for row in found],
        )

    def _results(self, config: ListConfig) -> Path:
        """Returns the folder that is read. Raises UserError where there is none of that name."""
        if not config.results:
            cloned = Path("results")
            return cloned if (cloned / self.example).is_dir() else PACKED
        results = Path(config.results)
        if not results.is_dir():
            raise UserError(
                f"no folder of results at {config.results!r}: leave --set results=FOLDER out for "
                "those that came with NormScope, or name one that has a folder for each study, "
                f"such as FOLDER/{self.example}"
            )
        return results


def _source(results: Path) -> str:
    if results == PACKED:
        return f"the results that came with NormScope {__version__}"
    return "its results.json"


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
