"""Folders that somebody made to have files elsewhere read or removed, given to every command that
reads what such a folder lists.

What they lead to lies beside them, in a folder of a test's own.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from kinds import examples
from limits.commands import DOCUMENTS, FOLDERS, PAIRS, SHORT, refused, within
from normscope.data.folder import fingerprint
from tiny import resealed

OPENED = set[str]()
"""Real paths of all that was opened while `watched`."""
_WATCHING = list[bool]()


def _note(event: str, given: tuple[Any, ...]) -> None:
    if _WATCHING and event == "open" and isinstance(given[0], str | bytes | os.PathLike):
        OPENED.add(os.path.realpath(os.fsdecode(given[0])))


sys.addaudithook(_note)  # which stays for the life of the process, and does nothing between


@contextmanager
def watched() -> Iterator[None]:
    OPENED.clear()
    _WATCHING.append(True)
    try:
        yield
    finally:
        _WATCHING.clear()


def test_what_is_opened_is_seen(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("mine")
    with watched():
        (tmp_path / "link").read_bytes()
    assert str((tmp_path / "mine").resolve()) in OPENED


_CORPUS = "--set data.corpus=FOLDER"
READERS = {
    "data documents": (
        f"{DOCUMENTS} --lowercase",
        f"train --run RUN --set task=language-model {_CORPUS} --set train.duration=1",
    ),
    "data prepare": (f"{PAIRS} --lowercase", f"train --run RUN {_CORPUS} {SHORT}"),
    "compare --out": (
        "report FOLDER",
        "report FOLDER --out RUN",
        FOLDERS["compare --out"].replace("pre-ln:0", "post-ln:0"),
    ),
}
"""Commands that read what a folder lists, by what made the folder."""
STEPS = st.lists(st.sampled_from(["./", "../FOLDER/", ".//"]), max_size=3)
ENDS = st.sampled_from(["", "/", "/.", "\0", "\\"])


def hostile(kind: str, folder: Path, name: str) -> None:
    """Have a folder list a name, and bear it out where numbers say something of it."""
    if kind == "compare --out":
        before = resealed(folder / "comparison.json")
        resealed(folder / "comparison.json", cells=[*before["cells"], name])
        return
    before = resealed(folder / "corpus.json")
    digest = next(iter(before["files"].values()))
    files = {name: digest, **before["files"]}
    resealed(folder / "corpus.json", files=files, fingerprint=fingerprint(files))


@pytest.mark.parametrize("kind", READERS)
@given(steps=STEPS, end=ENDS, absolute=st.booleans(), number=st.integers(0, 2))
@example(steps=[], end="", absolute=False, number=0)
@example(steps=[], end="", absolute=True, number=1)
@examples(24)
def test_a_folder_has_nothing_elsewhere_read_or_removed(
    kind: str,
    steps: list[str],
    end: str,
    absolute: bool,
    number: int,
    desk: Path,
    folders: dict[str, Path],
) -> None:
    words = READERS[kind][number % len(READERS[kind])]
    with within(desk) as place:
        folder, mine = place / "FOLDER", place / "mine"
        shutil.copytree(folders[kind], folder)
        up = "../mine"
        if kind == "compare --out":  # which reads runs, in a folder inside of it
            shutil.copytree(desk / "run", mine)
            up = "../../mine"
        else:
            mine.write_bytes(b"years of work\n")
        path = str(mine) if absolute else up
        hostile(kind, folder, "".join([*steps, path, end]))
        before = {file: file.read_bytes() for file in [mine, *mine.rglob("*")] if file.is_file()}
        listed = sorted(folder.rglob("*"))
        with watched():
            told = refused(words, desk, FOLDER=folder, RUN=place / "RUN")
        assert "may list plain names of files in its own folder alone" in told
        assert not [file for file in before if os.path.realpath(file) in OPENED]
        assert {file: file.read_bytes() for file in before} == before
        assert [one for one in listed if not one.exists()] == []
