"""What the package has of the repository's results: the lists of claims outside a clone."""

import json
from pathlib import Path

import pytest

from normscope_studies.engine.listing_study import ListConfig, ListedText
from normscope_studies.engine.packed import PACKED, packed
from normscope_studies.engine.pieces import Pieces
from normscope_studies.memo import MEMO
from normscope_studies.paper import PAPER

RESULTS = Path(__file__).parents[2] / "results"
LISTS = pytest.mark.parametrize("text", [PAPER, MEMO], ids=["paper", "memo"])


def test_the_package_has_what_the_results_say() -> None:
    """Where it has not: `python -m normscope_studies.manual docs`."""
    made = dict(packed(RESULTS, (text.listed()[0] for text in (PAPER, MEMO))))
    there = sorted(PACKED.rglob("*.json"))
    assert sorted(made) == there
    assert [file.read_text(encoding="utf-8") for file in there] == [made[file] for file in there]


@LISTS
def test_outside_a_clone_the_same_is_told_as_in_it(
    text: ListedText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    found = text.run(ListConfig(), Pieces(tmp_path / "out"))
    assert "came with NormScope" in found.conditions["Ours"]
    cloned = text.run(ListConfig(results=str(RESULTS)), Pieces(tmp_path / "out"))
    assert found.data == cloned.data
    assert found.lines == cloned.lines
    assert found.conditions["Not run"] == cloned.conditions["Not run"]


@LISTS
def test_no_link_leads_to_a_page_that_is_not_there(
    text: ListedText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    text.run(ListConfig(), Pieces(tmp_path / "out"))
    assert "](" not in (tmp_path / "out/claims.md").read_text(encoding="utf-8")


def test_in_a_clone_its_results_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    folder = tmp_path / "results" / PAPER.example
    folder.mkdir(parents=True)
    own = json.loads((PACKED / PAPER.example / "results.json").read_text(encoding="utf-8"))
    (folder / "results.json").write_text(json.dumps(own), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = PAPER.run(ListConfig(), Pieces(tmp_path / "out"))
    assert found.conditions["Ours"].endswith("from its results.json")
    measured = {row["study"] for row in found.data["rows"] if row["found"]}
    assert measured == {PAPER.example}
