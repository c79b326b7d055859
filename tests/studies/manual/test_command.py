"""`python -m normscope_studies.manual`: what it writes where, and what it says of a mistake."""

import sys
from pathlib import Path

import pytest

from normscope.choosing import evidence
from normscope.placement import registry
from normscope_studies.engine import packed
from normscope_studies.engine.discovery import studies
from normscope_studies.manual.__main__ import main

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for the evidence that is not the package's, and no placements of other tests."""
    ours = {
        name: p
        for name, p in registry._REGISTRY.items()
        if p.__module__.startswith("normscope.placement.")
    }
    monkeypatch.setattr(registry, "_REGISTRY", ours)
    monkeypatch.setattr(evidence, "FILE", tmp_path / "evidence.json")
    monkeypatch.setattr(packed, "PACKED", tmp_path / "measured")


def test_outside_a_clone_there_is_nothing_to_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["manual", str(tmp_path / "docs")])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "no such file; the manual's pages are made in a clone" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_it_is_no_study():
    assert "manual" not in studies()


@pytest.mark.thorough
def test_all_that_is_generated_is_written_and_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.setattr(sys, "argv", ["manual", str(tmp_path / "docs")])
    main()
    written = sorted(
        path.relative_to(tmp_path) for path in (tmp_path / "docs").rglob("*") if path.is_file()
    )
    pages = [
        ROOT / "docs" / name for name in ("choosing.md", "choosing-tables.md", "placements.md")
    ]
    expected = sorted([*pages, *(ROOT / "docs/placements").iterdir()])
    assert [ROOT / path for path in written] == expected
    assert [(tmp_path / path).read_text() for path in written] == [
        path.read_text() for path in expected
    ]
    measured = ROOT / "src/normscope_studies/measured"
    kept = sorted(file.relative_to(measured) for file in measured.rglob("*.json"))
    made = tmp_path / "measured"
    assert sorted(file.relative_to(made) for file in made.rglob("*.json")) == kept
    assert all((made / file).read_bytes() == (measured / file).read_bytes() for file in kept)
    there = ROOT / "src/normscope/choosing/evidence.json"
    assert evidence.FILE.read_bytes() == there.read_bytes()
