"""The list of the memo's claims: against its text, and against what the studies are said to
state.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import SHARED
from normscope.errors import UserError
from normscope.limits.kinds import CLAIMS as KIND
from normscope_studies.engine.discovery import studies
from normscope_studies.engine.judging import Verdict
from normscope_studies.engine.listing import HELD, NOT_RUN, NOT_TESTED, ListedClaim, rows
from normscope_studies.engine.listing_study import ListConfig
from normscope_studies.engine.listing_tables import markdown
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.memo import MEMO, STUDY

RESULTS = Path(__file__).parents[2] / "results"
CLAIMS, STUDIES = MEMO.listed()
OWN = (
    "amplification",
    "amplification_trainings",
    "deep",
    "stable",
    "adaptive",
    "conditioning",
    "probes",
)
"""The studies that the memo alone asks for."""


def memo() -> str:
    file = SHARED / "paper/memo-stability.md"
    if not file.is_file():
        pytest.skip(f"needs {file.name} in the shared folder {SHARED} (set NORMSCOPE_SHARED)")
    return file.read_text(encoding="utf-8")


HEADINGS = (
    "Abstract",
    "Related Work",
    "Method/Mechanism",
    "Key Findings",
    "Limitations",
    "Future Directions",
    "Summary",
    "References",
)


def section(of: str, heading: str) -> str:
    """The lines below a heading, which stands alone on its line, up to the next."""
    parts = re.split(rf"^({'|'.join(HEADINGS)})\n", of, flags=re.MULTILINE)
    return parts[parts.index(heading) + 1]


@pytest.mark.parametrize("one", CLAIMS, ids=lambda one: f"{one.place}: {one.statement[:40]}")
def test_what_the_memo_is_said_to_claim_stands_at_the_place_that_is_named(one: ListedClaim) -> None:
    place = section(memo(), one.section)
    for quote in one.quotes:
        assert quote in place
    for number in re.findall(r"\d+(?:[.,]\d+)*", one.published):
        assert number in " ".join(one.quotes)


def test_every_finding_question_and_direction_of_the_memo_is_in_the_list() -> None:
    """By sentences: each insight, case study, future direction and the open question has a row that
    quotes it.
    """
    text = memo()
    quotes = [quote for one in CLAIMS for quote in one.quotes]
    findings = [line for line in section(text, "Key Findings").splitlines() if line[:2] == "- "]
    assert len(findings) == 7
    directions = section(text, "Future Directions")
    *future, question = [line for line in directions.splitlines() if line]
    sentences = re.split(r"(?<=\.) ", " ".join(future))
    assert len(sentences) == 3
    assert question.startswith("Open question: ")
    for sentence in [*findings, *sentences, question]:
        assert any(quote in sentence for quote in quotes), sentence


def test_every_claim_is_of_a_group_that_has_a_table() -> None:
    assert {one.whose for one in CLAIMS} == set(MEMO.groups)


def test_what_measures_a_claim_is_a_study_that_there_is_and_one_command() -> None:
    known = studies()
    assert set(OWN) < STUDIES.keys()
    for one in STUDIES.values():
        verb, study, name = one.command.split()
        assert (verb, study) == ("normscope", "study")
        assert name in known
    asked = {one.study for one in CLAIMS if one.study}
    assert asked == STUDIES.keys()


def test_what_no_study_judges_names_a_test_that_there_is_or_says_why_nothing_tests_it() -> None:
    assert {bool(one.study) + bool(one.test) + bool(one.untested) for one in CLAIMS} == {1}
    for one in CLAIMS:
        if one.test:
            file, name = one.test.split("::")
            source = (RESULTS.parent / file).read_text("utf-8")
            assert re.search(rf"^def {name}\b", source, re.MULTILINE)
            assert one.tested
    assert sum(bool(one.untested) for one in CLAIMS) == 2


@pytest.mark.parametrize("name", OWN)
def test_every_study_that_trains_is_offered_for_an_accelerator(name: str) -> None:
    """Amplification draws models and trains none."""
    scales = studies()[name.replace("_", "-")].load().scales
    assert scales["smoke"] != scales["cpu"] != scales["paper"]
    if name != "amplification":
        assert scales["gpu"].device == "cuda"
        assert scales["cpu"].device == "cpu"


def write(folder: Path, name: str, scale: str, verdict: str = "reproduced") -> None:
    """Results that hold every claim that the list expects of a study."""
    claims = [
        {
            "name": one.claim,
            "statement": "so",
            "found": "1.25 ± 0.01",
            "verdict": verdict,
            "conditions": "",
        }
        for one in CLAIMS
        if one.study == name
    ]
    table = {"scale": scale, "conditions": {"seeds": "3"}, "claims": claims}
    (folder / name).mkdir(parents=True)
    (folder / name / "README.md").touch()
    (folder / name / "results.json").write_text(json.dumps(table), "utf-8")


def test_small_trials_tell_nothing_and_parts_are_parts(tmp_path: Path) -> None:
    write(tmp_path, "conditioning", "smoke", "contradicted")
    write(tmp_path, "deep", "cpu")
    write(tmp_path, "adaptive", "cpu")
    found = rows(CLAIMS, STUDIES, tmp_path)
    by_study: dict[str, set[str]] = {}
    for row in found:
        by_study.setdefault(row.listed.study, set()).add(row.verdict_words)
    assert by_study["conditioning"] == {Verdict.TOO_SMALL}
    assert by_study["deep"] == {Verdict.IN_PART}
    assert by_study["adaptive"] == {Verdict.REPRODUCED}
    assert by_study["probes"] == {NOT_RUN}
    assert by_study[""] == {HELD, NOT_TESTED}


def test_the_study_writes_the_page_and_the_claims_beside_it(tmp_path: Path) -> None:
    results, out = tmp_path / "made", tmp_path / "out"
    for name in ("deep", "probes"):
        write(results, name, "cpu")
    config = ListConfig(results=str(results))
    findings, page = run_study(STUDY, config, Pieces(out), command="normscope study memo")
    html = page.read_text("utf-8")
    assert html.count('<a href="../made/probes/README.md">probes</a>') == 1 + sum(
        one.study == "probes" for one in CLAIMS
    )
    assert len(findings.data["rows"]) == len(CLAIMS)
    assert sum(sum(one.values()) for one in findings.data["verdicts"].values()) == len(CLAIMS)
    assert "normscope study conditioning" in html
    written = out / "claims.md"
    assert KIND.bears(written.read_bytes())
    for group in MEMO.groups.values():
        assert f"\n## {group}, " in written.read_text("utf-8")
    # What lies there of ours is written anew.
    run_study(STUDY, config, Pieces(out), command="normscope study memo")


@pytest.mark.parametrize("name", ["memo", "paper"])
def test_a_list_is_planned_without_writing_anything(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lines = studies()[name].run(
        scale="cpu",
        settings=[f"results={RESULTS}"],
        out=out,
        processes=1,
        watch=lambda *_: None,
        say=lambda _: None,
        command="",
        dry_run=True,
    )
    assert lines[-1].endswith("it trains nothing.")
    assert not out.exists()


def test_without_results_it_says_where_there_are_some(tmp_path: Path) -> None:
    config = ListConfig(results=str(tmp_path / "none"))
    named = "those that came with NormScope.*such as FOLDER/amplification"
    with pytest.raises(UserError, match=named):
        run_study(STUDY, config, Pieces(tmp_path / "out"), command="normscope study memo")


def test_a_claim_that_a_study_of_ours_states_by_another_name_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "probes", "cpu")
    file = tmp_path / "probes" / "results.json"
    table: Any = json.loads(file.read_text("utf-8"))
    table["claims"][0]["name"] = "another"
    file.write_text(json.dumps(table), "utf-8")
    with pytest.raises(UserError, match="make them again: normscope study probes"):
        rows(CLAIMS, STUDIES, tmp_path)


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    """Where it is not: `normscope study memo --out results/memo`, and its reading."""
    found = rows(CLAIMS, STUDIES, RESULTS)
    saved = json.loads((RESULTS / "memo/results.json").read_text("utf-8"))["rows"]
    assert [(row["claim"], row["found"], row["verdict"]) for row in saved] == [
        (row.listed.claim, row.found or None, row.verdict_words) for row in found
    ]
    shown = MEMO.page_tables(found, RESULTS, RESULTS / "memo")
    assert (RESULTS / "memo/claims.md").read_text("utf-8") == markdown(MEMO.heading, shown)
