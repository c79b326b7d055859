"""The list of the paper's claims: against the paper's text, against the notes on it, and against
the studies' data.
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import SHARED
from normscope.errors import UserError
from normscope.report.words import Tone
from normscope_studies.engine.judging import Verdict
from normscope_studies.engine.listing import (
    HELD,
    NOT_RUN,
    NOT_TESTED,
    ClaimRow,
    ListedClaim,
    rows,
    tally,
)
from normscope_studies.engine.listing_study import ListConfig
from normscope_studies.engine.listing_tables import markdown, not_run
from normscope_studies.engine.page import Link, Marked
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.paper import PAPER as LIST, STUDY

RESULTS = Path(__file__).parents[2] / "results"
CLAIMS, STUDIES = LIST.listed()
PAPER, NOTES = "paper/xiong2020.md", "field-notes.md"


def text(name: str) -> str:
    file = SHARED / name
    if not file.is_file():
        pytest.skip(f"needs {name} in the shared folder {SHARED} (set NORMSCOPE_SHARED)")
    return file.read_text(encoding="utf-8")


def section(of: str, heading: str) -> str:
    """From the heading that begins so to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}.*?(?=^#+ |\Z)", of, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[0]


def written(found: list[ClaimRow]) -> str:
    """As claims.md has it."""
    return markdown(LIST.heading, LIST.page_tables(found, RESULTS, RESULTS / "paper"))


def committed() -> list[ClaimRow]:
    return rows(CLAIMS, STUDIES, RESULTS)


@pytest.mark.parametrize(
    "one", CLAIMS, ids=lambda one: f"{one.study}: {one.claim or one.statement[:40]}"
)
def test_what_is_called_published_stands_at_the_place_that_is_named(one: ListedClaim) -> None:
    place = section(text(one.text), one.section)
    for quote in one.quotes:
        assert quote in place
    words = " ".join(one.quotes)
    for number in re.findall(r"\d+(?:\.\d+)?", one.published):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d]|\.\d)", words), (
            f"{number} of {one.published!r}"
        )
    # Each BLEU score and loss of a statement is the paper's own; 1e-3 is written otherwise there.
    for number in re.findall(r"(?<![\d.])\d+\.\d+(?![\d.e])", one.statement):
        assert number in text(one.text)


def test_what_was_not_run_is_named_where_it_is_counted(tmp_path: Path) -> None:
    one = ClaimRow(
        listed=CLAIMS[0],
        tested="that it is 1",
        found="1.0",
        conditions="",
        verdict=Verdict("reproduced"),
        where="",
        command="normscope study",
    )
    (tmp_path / one.listed.study).mkdir()
    (tmp_path / one.listed.study / "results.json").touch()
    other = replace(one, found="", verdict=None)
    assert not_run([one], tmp_path) == "nothing"
    assert not_run([one, other], tmp_path) == one.listed.place
    assert not_run([one, other], tmp_path / "none") == f"no results of {one.listed.study}"


def test_every_lemma_theorem_figure_appendix_and_score_of_the_paper_is_in_the_list() -> None:
    paper = text(PAPER)
    places = " ".join(one.place for one in CLAIMS)
    named = {
        f"{kind.lower()} {number}"
        for kind, number in re.findall(r"\*\*(Lemma|Theorem|Definition) (\d)", paper)
    }
    # Lemmas 4 and 5 are steps of the proof of theorem 1; figure 1 is a drawing of the two
    # placements.
    named -= {"lemma 4", "lemma 5"}
    figures = {f"figure {number}" for number in re.findall(r"Figure (\d)[.(]", paper)} - {
        "figure 1"
    }
    appendices = {
        f"appendix {letter}" for letter in re.findall(r"^#+ ([B-H])\. ", paper, re.MULTILINE)
    }
    assert {"lemma 1", "lemma 3", "theorem 1"} < named
    assert figures == {f"figure {number}" for number in (2, 3, 4, 5, 6)}
    assert len(appendices) == 7
    for place in named | figures | appendices:
        assert place in places, place
    # Every score of a translation or loss with decimals in the sections of results, wherever it
    # stands.
    results = "".join(section(paper, heading) for heading in ("3.2.", "3.4.", "4.2.", "A.2.", "H."))
    scores = set(
        re.findall(
            r"(?<![\d.])\d+\.\d+"
            r"(?= (?:test )?BLEU|\. As a comparison| and 2| in term|\)| validation| in 27)",
            results,
        )
    )
    assert scores >= {"8.45", "31.16", "2.77", "1.69", "1.6", "35.5", "4.3"}
    scores -= {"0.98"}  # Adam's second moment
    published = " ".join(one.published for one in CLAIMS)
    assert {score for score in scores if score not in published} == set()


def test_every_note_on_the_papers_claims_is_in_the_list() -> None:
    errors = re.findall(r"^(\d+)\. ", section(text(NOTES), "2."), re.MULTILINE)
    schedules = re.findall(r"^(\d+)\. ", section(text(NOTES), "4."), re.MULTILINE)
    noted = {f"2.{number}" for number in errors} | {f"4.{number}" for number in schedules}
    # A caption, another text than the paper, slips of the pen, other libraries' conventions: no
    # claims of the paper.
    assert noted - {one.note for one in CLAIMS} == {"2.9", "2.10", "2.11", "4.3"}


def test_what_no_study_judges_names_a_test_that_there_is_or_says_why_nothing_tests_it() -> None:
    assert {bool(one.study) + bool(one.test) + bool(one.untested) for one in CLAIMS} == {1}
    for row in rows([one for one in CLAIMS if not one.study], STUDIES, RESULTS):
        if test := row.listed.test:
            file, *names = test.split("::")
            source = (RESULTS.parent / file).read_text("utf-8")
            assert [
                name
                for name in names
                if not re.search(rf"^ *(?:def|class) {name}\b", source, re.MULTILINE)
            ] == []
            assert row.tested, test
        ((cells,), *_) = (made.rows for made in LIST.page_tables([row], RESULTS, RESULTS / "paper"))
        words = (row.tested, test, HELD) if test else ("nothing", row.listed.untested, NOT_TESTED)
        verdict = Marked(words[2], Tone.PLAIN)
        assert cells[2:] == [verdict, row.listed.published, *words[:2], "–"]


def test_each_row_has_what_stands_in_the_data_of_its_study() -> None:
    found = committed()
    assert len(found) == len(CLAIMS)
    for row in found:
        file = RESULTS / row.listed.study / "results.json"
        if row.verdict is None:
            assert not file.is_file() or not row.listed.claim
            continue
        data = json.loads(file.read_text("utf-8"))
        (claim,) = [c for c in data["claims"] if c["name"] == row.listed.claim]
        assert row.found == claim["found"]
        assert row.tested == (row.listed.tested or claim["statement"])
        said = (row.verdict_words, row.where)
        if row.verdict is Verdict.TOO_SMALL:
            trial = data["scale"] == "smoke" and row.where == "scale smoke"
            assert trial or (row.listed.least_bleu and "asked for" in row.where)
        elif row.verdict is Verdict.IN_PART:
            assert row.listed.part
            assert claim["verdict"] in ("reproduced", "reproduced under conditions")
            assert row.where.startswith(row.listed.part)
        else:
            assert said == (claim["verdict"], claim["conditions"])
    assert sum(row.verdict is not None for row in found) > 30


def test_no_claim_of_a_part_and_no_number_of_bleu_is_called_reproduced() -> None:
    """The best of figure 2's trainings translates at 2.1 BLEU and the best of figure 4's at 9.6,
    where the paper's numbers are 34 and more.
    """
    found = committed()
    reproduced = [row.listed for row in found if row.verdict is Verdict.REPRODUCED]
    assert [one.statement for one in reproduced if one.part or one.least_bleu] == []
    # Every row of the paper's that publishes a number of BLEU, or a loss beside one, asks for it.
    for row in found:
        if row.listed.whose == "the paper" and row.found and "BLEU" in row.listed.statement:
            assert row.listed.least_bleu, row.listed.statement
            assert row.verdict is Verdict.TOO_SMALL
    assert sum(row.verdict is Verdict.TOO_SMALL for row in found) >= 5


def test_where_a_study_has_results_every_claim_of_it_has_a_name() -> None:
    """But for those that a command of their own measures."""
    there = {name for name in STUDIES if (RESULTS / name / "results.json").is_file()}
    assert [
        one.statement for one in CLAIMS if one.study in there and not (one.claim or one.command)
    ] == []


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    """Where it is not: `normscope study paper --out results/paper`, and its reading."""
    saved = json.loads((RESULTS / "paper/results.json").read_text("utf-8"))["rows"]
    assert [(row["claim"], row["found"], row["verdict"]) for row in saved] == [
        (row.listed.claim, row.found or None, row.verdict_words) for row in committed()
    ]
    assert (RESULTS / "paper/claims.md").read_text("utf-8") == written(committed())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder of results in which two studies have been run."""
    folder = tmp_path / "made"
    for name in ("lemmas", "theorem1"):
        shutil.copytree(RESULTS / name, folder / name)
    return folder


def changed(folder: Path, name: str, change: Any) -> None:
    file = folder / name / "results.json"
    table = json.loads(file.read_text("utf-8"))
    change(table)
    file.write_text(json.dumps(table), "utf-8")


def test_what_nobody_has_run_says_so_with_its_command(made: Path) -> None:
    found = rows(CLAIMS, STUDIES, made)
    for row in found:
        assert (row.verdict_words == NOT_RUN) == (
            row.listed.study not in ("lemmas", "theorem1", "")
        )
    (footnote,) = [row for row in found if "35.5" in row.listed.published]
    recipe = (RESULTS.parent / "docs/iwslt14_pre_ln.toml").read_text("utf-8")
    asked = re.findall(r"^#   (normscope .*)$", recipe, re.MULTILINE)
    assert footnote.command == "; ".join(asked)
    assert len(asked) == 2
    assert "--average 10 " in asked[1]
    values = {
        "rate 7.5e-4": "peak_lr = 7.5e-4",
        "decay from update 8,000": "decay_from_updates = 8000",
        "dropout 0.3": "dropout = 0.3",
        "attention dropout 0.1": "attention_dropout = 0.1",
        "8192 tokens": "max_tokens = 8192",
    }
    for words, setting in values.items():
        assert words in footnote.listed.statement
        assert re.search(rf"^{re.escape(setting)}$", recipe, re.MULTILINE), setting
    held, left = sum(bool(one.test) for one in CLAIMS), sum(bool(one.untested) for one in CLAIMS)
    assert (
        f"{held} {HELD}, {sum(row.verdict is None for row in found) - held - left} not run, {left} "
        f"{NOT_TESTED}" in (tally(found))
    )


def test_a_study_that_has_been_run_fills_its_rows(made: Path) -> None:
    (made / "figure2").mkdir()
    claim = {
        "name": "warm-up is essential under Adam",
        "statement": "within 0.1",
        "found": "1.25 ± 0.01",
        "verdict": "undecided",
        "conditions": "a; not b",
    }
    names = [one.claim for one in CLAIMS if one.study == "figure2"]
    table = {
        "scale": "cpu",
        "conditions": {"seeds": "3", "odd": "x"},
        "claims": [claim | {"name": name} for name in names],
        "configurations": [{"last_bleu": [30.0, 32.0]}, {"last_bleu": [4.0, 5.0]}],
    }
    (made / "figure2/results.json").write_text(json.dumps(table), "utf-8")
    row = next(row for row in rows(CLAIMS, STUDIES, made) if row.listed.study == "figure2")
    assert (row.found, row.verdict_words, row.where) == ("1.25 ± 0.01", "undecided", "a; not b")
    assert row.conditions == "scale: cpu; seeds: 3"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda table: table["claims"].pop(0),
            "its results hold no claim 'Lemma 1'; make them again: normscope study lem",
        ),
        (lambda table: table.pop("claims"), "are not those of a study"),
        (lambda table: table["claims"][0].update(verdict="nice"), "are not those of a study"),
        (lambda table: table.pop("conditions"), "are not those of a study"),
    ],
)
def test_results_that_do_not_hold_what_the_list_says_are_refused(
    made: Path, change: Any, says: str
) -> None:
    changed(made, "lemmas", change)
    with pytest.raises(UserError, match=says):
        rows(CLAIMS, STUDIES, made)


def test_damaged_results_are_refused_by_name(made: Path) -> None:
    (made / "lemmas/results.json").write_text('{"claims": [', "utf-8")
    with pytest.raises(
        UserError, match=r"lemmas/results\.json cannot be read .*make the study's results again"
    ):
        rows(CLAIMS, STUDIES, made)


def test_the_study_writes_one_table_with_links_and_verdicts(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = ListConfig(results=str(made))
    _, page = run_study(STUDY, config, Pieces(out), command="normscope study paper", scale="cpu")
    html = page.read_text("utf-8")
    assert ">Numbers</h2>" in html
    assert ">Figures</h2>" not in html
    # Once more with its conditions.
    links = 1 + sum(c.study == "theorem1" for c in CLAIMS)
    assert html.count('<a href="../made/theorem1/README.md">theorem1</a>') == links
    assert (out / "../made/theorem1/README.md").is_file()
    data = json.loads((out / "results.json").read_text("utf-8"))
    assert len(data["rows"]) == len(CLAIMS)
    assert sum(sum(counts.values()) for counts in data["verdicts"].values()) == len(CLAIMS)
    for row in data["rows"]:
        assert row["verdict"] in html
    claims, conditions = (out / "claims.md").read_text("utf-8").split("## Conditions")
    assert claims.count("\n|") == len(CLAIMS) + 3 * 2
    assert conditions.count("\n| [theorem1](../made/theorem1/README.md) |") == 1


def test_the_paper_s_claims_stand_apart_from_ours_and_from_summaries() -> None:
    found = committed()
    own, ours, digests, _ = LIST.page_tables(found, RESULTS, RESULTS / "paper")
    assert own.title.startswith(f"The paper's own claims, {len(own.rows)}: ")
    assert all(
        "corrected" not in row[0] and "digests" not in row[0]
        for row in own.rows
        if isinstance(row[0], str)
    )
    assert (
        len(ours.rows) + len(digests.rows) == sum(one.whose != "the paper" for one in CLAIMS) == 20
    )
    # Every published score that no model here has reached says what was tested in its place.
    for one in CLAIMS:
        if (
            one.whose == "the paper"
            and re.search(r"BLEU|around 4|1\.69", one.published)
            and one.claim
        ):
            assert one.tested, one.statement


def test_cells_that_link_and_judge() -> None:
    row = next(
        row for row in committed() if row.listed.claim == "Figure 3(c), Pre-LN falls as 1/√L"
    )
    ((cells,), _) = (made.rows for made in LIST.page_tables([row], RESULTS, RESULTS / "paper"))
    assert cells[-1] == Link("figure3", "../figure3/README.md")
    assert isinstance(cells[2], Marked)
    assert (cells[2].text, cells[2].note) == (row.verdict_words, row.where)
    bar = replace(row, found="|x|")
    assert "&#124;x&#124;" in written([bar])


def test_no_folder_of_results_is_one_line_that_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"no folder of results at '.*absent'.* --set results=FOLDER"
    ):
        STUDY.run(ListConfig(results=str(tmp_path / "absent")), Pieces(tmp_path))
    with pytest.raises(ValueError, match="claims must be at least 0"):
        ListConfig(claims=-1)
