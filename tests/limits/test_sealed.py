"""Files that hold a SHA-256 of themselves: what is refused, and what is said of it."""

import hashlib
import json
from pathlib import Path

import pytest

from normscope.errors import UserError
from normscope.limits.ours import SealedJson
from tiny import resealed

KIND = SealedJson(
    format_name="normscope-test",
    version=3,
    keys=frozenset({"one"}),
    optional=frozenset({"two"}),
    again="make it again",
)
STATE = {"one": [1.5, None, "π"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file.json").write_text(KIND.text(STATE))
    return tmp_path / "file.json"


def test_the_last_key_is_the_sha256_of_the_json_without_it(file: Path) -> None:
    table = json.loads(file.read_text())
    assert list(table) == ["format", "version", "one", "sha256_of_this_file"]
    digest = table.pop("sha256_of_this_file")
    assert digest == hashlib.sha256(json.dumps(table, indent=1).encode()).hexdigest()
    assert KIND.read(file) == STATE
    resealed(file, two=2)
    assert KIND.read(file) == STATE | {"two": 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 4}, "has version 4, and this NormScope reads 3; make it again"),
        ({"version": None}, "has version None, and this NormScope reads 3; make it again"),
        ({"format": "other"}, "is of format 'other', not a normscope-test file; make it again"),
        (
            {"one": None, "three": 3},
            "was written by another version: it lacks 'one', has the unknown 'three'; make it",
        ),
    ],
)
def test_a_whole_file_of_another_kind_or_version_is_told(
    file: Path, changes: dict[str, object], message: str
) -> None:
    resealed(file, **changes)
    with pytest.raises(UserError, match=f"^{file} {message}"):
        KIND.read(file)


def test_what_cannot_be_read_is_told(file: Path) -> None:
    with pytest.raises(UserError, match=f"{file.parent} cannot be read .Is a directory.; fix that"):
        KIND.read(file.parent)
    file.write_text(file.read_text().replace("1.5", "2.5"))
    with pytest.raises(
        UserError,
        match=f"{file} is damaged .its SHA-256 is not the one noted in it.; make it again",
    ):
        KIND.read(file)
    file.write_text('{"model": "somebody\'s"}')
    with pytest.raises(
        UserError, match=f"{file} is damaged or no normscope-test file; make it again"
    ):
        KIND.read(file)
    file.unlink()
    with pytest.raises(UserError, match=f"{file}: no such file; make it again"):
        KIND.read(file)
