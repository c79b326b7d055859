"""The hash of the source changes with whatever may change a number, and with nothing else where
pieces go by it.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from normscope import provenance

MEASURE = "normscope_studies.lemmas.measure"


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the package that can be edited."""
    root = tmp_path / "normscope"
    for package in ("normscope", "normscope_studies"):
        there = provenance.ROOT.parent / package
        shutil.copytree(there, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(provenance, "ROOT", root)
    return root


def forget() -> None:
    for function in (provenance.source_sha256, provenance.source_of, provenance._commit):
        function.cache_clear()


def hashes() -> tuple[str, str]:
    forget()
    return provenance.source_sha256("normscope_studies"), provenance.source_of(MEASURE)


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    forget()


@pytest.mark.parametrize(
    ("file", "measured"),
    [
        ("normscope_studies/lemmas/measure.py", True),
        ("normscope/placement/formulas/pre_and_post.py", True),
        ("normscope/model/sublayers.py", True),
        ("normscope_studies/lemmas/study.py", False),
        ("normscope/cli/main.py", False),
    ],
)
def test_an_edit_changes_the_hashes_it_should(copy, file, measured):
    whole, of_measure = hashes()
    path = copy.parent / file
    path.write_text(path.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    whole_now, of_measure_now = hashes()
    assert whole_now != whole
    assert (of_measure_now != of_measure) == measured


def test_a_new_placement_counts_though_nothing_names_it(copy):
    _, before = hashes()
    (copy / "placement/formulas/new.py").write_text("", encoding="utf-8")
    assert hashes()[1] != before


def test_the_hash_does_not_depend_on_where_the_package_lies(copy):
    there = hashes()
    assert there != ("", "")
    provenance.ROOT, moved = Path(provenance.__file__).parent, provenance.ROOT
    try:
        assert hashes() == there
    finally:
        provenance.ROOT = moved


def test_a_module_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no_such_package is no package that Python finds"):
        provenance.source_of("no_such_package.measure")


def test_the_commit_says_what_was_modified(copy):
    def git(*words: str) -> None:
        named = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(
            ["git", "-C", str(copy.parent), *named, *words], check=True, capture_output=True
        )

    forget()
    assert provenance.provenance()["commit"] == ""
    git("init")
    forget()
    assert provenance.provenance()["commit"] == "", "nothing is tracked yet"
    git("add", ".")
    git("commit", "-m", "all")
    forget()
    assert len(provenance.provenance()["commit"]) == 40
    (copy / "errors.py").write_text("", encoding="utf-8")
    forget()
    assert provenance.provenance()["commit"].endswith(" (modified)")


def test_a_run_names_its_source(copy):
    import torch

    from normscope.train.device import describe

    found = describe(device=torch.device("cpu"), seed=1, data_fingerprint="", fast_matmul=False)
    assert found["source_sha256"] == provenance.source_sha256()
    json.dumps(found)
