"""Work in parts by several processes, in order; each part is on the disk whole or not at all.

A kill costs the parts that were being made. While a corpus is made, its parts lie in a folder of
their own inside the unfinished one, beside a note of what the work is. The same command finds them
and goes on; work for other input or with other options is cleared away.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UserError
from ..files import write_atomically
from ..limits.names import inside
from ..limits.ours import SealedJson
from ..processes.pool import ending_pool

PART_CHARACTERS = 2**22
"""The characters of text in one part: seconds of work, and some ten MB of memory for each
process.
"""
_FOLDER = "parts"
_NOTE = "work.json"
TABLE = "read.json"
"""The file that lists the parts, when all of them are made."""
_VERSION = 3
_MADE_WITH = ("tokenizers", "sentencex", "sacremoses", "numpy")
_AGAIN = "prepare the corpus again"
_WORK = SealedJson(
    format_name="normscope-preparation",
    version=_VERSION,
    keys=frozenset({"key", "made_with"}),
    again=_AGAIN,
)
_READ = SealedJson(
    format_name="normscope-preparation-parts",
    version=_VERSION,
    keys=frozenset({"parts"}),
    again=_AGAIN,
)
_Item = TypeVar("_Item")


def of_use(key: str, unfinished: Path) -> bool:
    """Tells whether a folder holds enough work of this key to go on with: at least that of a whole
    part.

    A key is equal for equal input and options.
    """
    folder = inside(unfinished, _FOLDER, unfinished)
    try:
        if _WORK.read(folder / _NOTE) != _note(key):
            return False
        with os.scandir(folder) as entries:
            made = sum(
                entry.stat().st_size for entry in entries if not entry.name.endswith(".json")
            )
    except (OSError, UserError):
        return False
    return made >= PART_CHARACTERS


def begin(key: str, unfinished: Path) -> Path:
    """Returns the folder of the parts, made where it is not there."""
    folder = inside(unfinished, _FOLDER, unfinished)
    folder.mkdir(exist_ok=True)
    if not (folder / _NOTE).exists():
        write_atomically(folder / _NOTE, _WORK.text(_note(key)))
    return folder


def _note(key: str) -> dict[str, Any]:
    # Another version of a library may split and tokenise otherwise.
    return {"key": key, "made_with": {name: version(name) for name in _MADE_WITH}}


def cut(
    items: Iterable[_Item], characters: Callable[[_Item], int], *, share: int = 1
) -> Iterator[list[_Item]]:
    """The items in parts of at least `PART_CHARACTERS`, as few of them as that takes; the last may
    be shorter.

    share: parts so many times as short, of what takes so much longer."""
    part: list[_Item] = []
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
    """Returns the parts that `note_parts` was given, or None where not all are made."""
    path = folder / TABLE
    return list(_READ.read(path)["parts"]) if path.exists() else None


def note_parts(folder: Path, parts: list[Any]) -> None:
    """Note that all parts are made, and what is known of each."""
    write_atomically(folder / TABLE, _READ.text({"parts": parts}))


_Result = TypeVar("_Result")


def in_order(
    function: Callable[[_Item], _Result], items: Iterable[_Item], *, processes: int
) -> Iterator[_Result]:
    """Yields what the function makes of each item, in their order; the same for any number of
    processes.

    One works in this process; more are spawned, so that function and items must be picklable, and
    the main module importable. At most 2 * processes + 1 items are taken ahead of what is given
    out. Raises UserError where a process ends before its work is done.
    """
    if processes == 1:
        yield from map(function, items)
        return
    waiting: deque[Future[Any]] = deque()
    try:
        with ending_pool(processes, _alone_in_its_threads) as pool:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "a process ended before its work was done (no memory left, or a script without "
            '`if __name__ == "__main__":`); try one process'
        ) from error


def _alone_in_its_threads() -> None:
    """Threads of the tokenizers library would be as many as processors in each process."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
