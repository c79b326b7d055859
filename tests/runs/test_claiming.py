"""What is said where a run is resumed on something else than it began on."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from normscope.errors import UserError
from normscope.runs.config import keep_environment
from normscope.train import RunFolder
from normscope.train.device import change_of_source

OLD, NEW = "a" * 40, "b" * 40
BEGAN: dict[str, Any] = {
    "normscope": "0.1.0",
    "source_sha256": "1" * 64,
    "commit": OLD,
    "python": "3.11.7",
    "platform": "a system",
    "cores": 2,
    "torch": "2.13.0",
    "processor": "a CPU",
    "threads": 1,
    "device": "cpu",
    "accelerator": "",
    "fast_matmul": False,
    "data_fingerprint": "c" * 64,
    "seed": 1,
}


def said(folder: Path, **changes: Any) -> list[str]:
    """Notes for a run that began as `BEGAN` and is resumed with `changes`."""
    lines: list[str] = []
    run = RunFolder(folder)
    run.write_config("seed = 1\n")
    keep_environment(run, BEGAN, "corpus", lines.append)
    assert lines == []
    keep_environment(run, BEGAN | changes, "corpus", lines.append)
    bound = {"run": run.identity("c" * 64), "vocabularies_sha256": hashlib.sha256().hexdigest()}
    assert run.environment() == BEGAN | bound  # what it began on stays written
    return lines


def test_the_same_source_and_machine_need_no_note(tmp_path: Path) -> None:
    assert said(tmp_path, seed=1) == []


def test_another_source_is_named_by_its_commit(tmp_path: Path) -> None:
    assert said(tmp_path, source_sha256="2" * 64, commit=f"{NEW} (modified)") == [
        "note: the source of NormScope has changed since the run began: commit aaaaaaaaaaaa → "
        "bbbbbbbbbbbb (modified); the bits may differ from here on"
    ]


@pytest.mark.parametrize("commit", [OLD, ""])
def test_where_commits_do_not_tell_sources_apart_their_hashes_do(commit: str) -> None:
    assert change_of_source(BEGAN, BEGAN | {"source_sha256": "2" * 64, "commit": commit}) == (
        "SHA-256 111111111111 → 222222222222"
    )


def test_a_run_from_before_sources_were_recorded() -> None:
    before = {key: value for key, value in BEGAN.items() if key not in ("source_sha256", "commit")}
    assert change_of_source(before, BEGAN) == "SHA-256 not recorded → 111111111111"


def test_another_machine_is_a_note_for_each_difference(tmp_path: Path) -> None:
    assert said(tmp_path, threads=2, torch="3.0") == [
        f"note: this machine is not as it was when the run began ({change}); the bits may differ "
        "from here on"
        for change in ("torch: 2.13.0 -> 3.0", "threads: 1 -> 2")
    ]


def test_another_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the corpus corpus is not the one the run .* began with"):
        said(tmp_path, data_fingerprint="d" * 64)
