"""Work in parts, each of which is on the disk whole or not at all: a kill costs those that were being made.

While a corpus is made, its parts lie in a folder of their own inside the unfinished one, beside a note of what the work
is. The same command finds them and goes on; work for other input or with other options is cleared away.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UserError
from ..files import UNFINISHED, sync, write_atomically
from ..limits.sealed import SealedJson

PART_CHARACTERS = 2**22
"""Of text in one part: seconds of work, and some ten MB of memory for each process."""
_FOLDER = "parts"
_NOTE, _TABLE = "work.json", "read.json"
_VERSION = 1
_MADE_WITH = ("tokenizers", "sentencex", "sacremoses", "numpy")
_AGAIN = "prepare the corpus again"
_WORK = SealedJson(
    format_name="normscope-preparation", version=_VERSION, keys=frozenset({"key", "made_with"}), again=_AGAIN
)
_READ = SealedJson(format_name="normscope-preparation-parts", version=_VERSION, keys=frozenset({"parts"}), again=_AGAIN)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Work:
    """What is being made, by a key that is equal for equal input and options."""

    key: str

    def of_use(self, unfinished: Path) -> bool:
        """Whether a folder holds work of this key that is worth going on with: a whole part's at least."""
        folder = unfinished / _FOLDER
        try:
            if _WORK.read(folder / _NOTE) != self._note():
                return False
            found = 0
            with os.scandir(folder) as entries:
                for entry in entries:
                    found += 0 if entry.name.endswith(".json") else entry.stat().st_size
                    if found >= PART_CHARACTERS:
                        return True
        except (OSError, UserError):
            return False
        return False

    def begin(self, unfinished: Path) -> Path:
        """The folder of the parts, made where it is not there."""
        folder = unfinished / _FOLDER
        folder.mkdir(exist_ok=True)
        if not (folder / _NOTE).exists():
            write_atomically(folder / _NOTE, _WORK.text(self._note()))
        return folder

    def _note(self) -> dict[str, Any]:
        # Another version of a library may split and tokenise otherwise.
        return {"key": self.key, "made_with": {name: version(name) for name in _MADE_WITH}}


def write_part(path: Path, content: bytes) -> None:
    """Write a file that is under its name only when all of it is on the disk.

    Only the process that holds the folder does so: others may live a moment longer than it when it is killed.
    """
    temporary = path.with_name(UNFINISHED + path.name)
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def replace_part(old: Path, new: Path, content: bytes) -> None:
    """Write a part that is made of another one, which is not needed any more."""
    write_part(new, content)
    sync(new.parent)  # its name is on the disk before the other is gone
    old.unlink(missing_ok=True)


def cut(items: Iterable[Item], characters: Callable[[Item], int], *, share: int = 1) -> Iterator[list[Item]]:
    """The items in parts of at least `PART_CHARACTERS`, as few of them as that takes; the last may be shorter.

    share: parts so many times as short, of what takes so much longer."""
    part: list[Item] = []
    size = 0
    for item in items:
        part.append(item)
        size += characters(item)
        if size * share >= PART_CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part


def noted_parts(folder: Path) -> list[Any] | None:
    """What `note_parts` was given, or None where not all are made."""
    path = folder / _TABLE
    if not path.exists():
        return None
    parts: list[Any] = _READ.read(path)["parts"]
    return parts


def note_parts(folder: Path, parts: list[Any]) -> None:
    """Note that all parts are made, and what is known of each."""
    sync(folder)
    write_atomically(folder / _TABLE, _READ.text({"parts": parts}))
