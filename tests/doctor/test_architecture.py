"""The doctor's folders stand in one order, in which each knows only those before it."""

from pathlib import Path

import pytest

import normscope.doctor
from test_architecture import imports

DOCTOR = Path(normscope.doctor.__file__).parent
ORDER = (
    "trace",
    "find",
    "partly_used",
    "attended",
    "measured",
    "loss_targets",
    "record",
    "identify",
    "observe",
    "laws",
    "predict",
    "learned",
    "result",
    "lint",
    "advise",
    "report",
)
"""From what is recorded to what is said of it; the other files at the top know them all."""
FILES = [path for path in sorted(DOCTOR.rglob("*.py")) if path.parent != DOCTOR]


def folder_of(path: Path) -> str:
    return path.relative_to(DOCTOR).parts[0]


def out_of_order(path: Path) -> list[str]:
    """Imports of a later folder, or of a file at the top, for type annotations too."""
    own = ORDER.index(folder_of(path))
    found = []
    for line, name in imports(path):
        parts = name.split(".")
        if parts[1] == "doctor" and parts[2] not in ORDER[: own + 1]:
            found.append(f"{path.relative_to(DOCTOR)}:{line} imports {name}")
    return found


def test_the_order_has_every_folder_once() -> None:
    files = {
        "loss_targets",
        "measured",
        "partly_used",
        "attended",
        "record",
        "predict",
        "learned",
        "result",
        "advise",
    }
    assert sorted(ORDER) == sorted({folder_of(path) for path in FILES} | files)


def test_folders_know_only_those_before_them() -> None:
    assert [line for path in FILES for line in out_of_order(path)] == []


def test_the_search_finds_what_it_looks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_architecture.ROOT", tmp_path / "normscope")
    monkeypatch.setitem(globals(), "DOCTOR", tmp_path / "normscope" / "doctor")
    path = tmp_path / "normscope" / "doctor" / "observe" / "file.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "from ..find.terms import Term\n"
        "from ..identify import found\n"
        "from ...measure import record\n"
        "from ..diagnose import Diagnosis\n"
        "if TYPE_CHECKING:\n"
        "    from ..lint.rule import Rule\n"
    )
    assert [line.split()[-1] for line in out_of_order(path)] == [
        "normscope.doctor.diagnose.Diagnosis",
        "normscope.doctor.lint.rule.Rule",
    ]
