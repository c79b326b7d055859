"""One file that is written whole or not at all: beside its place, and renamed into it."""

import fcntl
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..limits.kinds import FileKind
from ..limits.ours import refuse_other, refuse_unusual
from .disk import naming, sync

UNFINISHED = ".unfinished-"
"""The beginning of the names of files and folders until they are whole."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which becomes `path` when the block ends and disappears when it raises: a
    reader, a kill or a power cut finds the old one or the new one, never a part.

    Raises UserError where a link or a folder stands there.
    """
    refuse_unusual(path)
    made: list[Path] = []
    try:
        handle, temporary = _temporary_of(path, made), made[-1]
        with naming(path), os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        for temporary in made:
            with suppress(
                OSError
            ):  # `clear_unfinished` takes it; what went wrong first is to be told
                temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file as `whole_file`. content: bytes, or text, which becomes UTF-8."""
    with whole_file(path) as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def write_over(path: Path, content: str | bytes, kind: FileKind) -> None:
    """Writes as `write_atomically` does, where a file of the user's may stand: over one of ours of
    this kind, an empty or an equal one, and no other.
    """
    content = content if isinstance(content, bytes) else content.encode()
    refuse_other(path, kind, content)
    write_atomically(path, content)


def _temporary_of(path: Path, made: list[Path]) -> int:
    """A new file beside `path` for its next content, held by this process; what killed ones left is
    removed.

    Its name is in `made` before it is there, so that a signal that comes while it is made does not
    leave it. Names are counted, and not looked for: of very many files in a folder each would be
    looked at again for every one that is written.
    """
    for number in itertools.count():
        # One of its own for every writer: two processes that write the same page must not share a
        # temporary file.
        made.append(_numbered(path, number))
        while (handle := _taken(made[-1])) is None:
            if not _removed_as_left(made[-1]):
                break
        if handle is not None:
            _remove_left_after(path, number)
            return handle
        made.pop()  # another process's
    raise AssertionError("numbers do not end")


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{UNFINISHED}{path.name}-{number:08x}")


def _taken(temporary: Path) -> int | None:
    """Makes a file and holds it; None where there is one of that name."""
    while True:
        try:
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            return None
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        # Another process took it for one that was left, in the moment before it was held.
        os.close(handle)


def _removed_as_left(temporary: Path) -> bool:
    """Removes a file that no process holds; False where it stays."""
    try:
        if not is_temporary(temporary):
            return not os.path.lexists(temporary)
        with temporary.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its writer may have put it into its place before it was held here, and the name may be
            # another's by now.
            if os.path.samestat(os.fstat(stream.fileno()), temporary.lstat()):
                temporary.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _remove_left_after(path: Path, number: int) -> None:
    """Removes what processes left that were killed while they wrote the same file side by side."""
    for more in itertools.count(number + 1):
        left = _numbered(path, more)
        if not os.path.lexists(left):
            return
        _removed_as_left(left)


def is_temporary(file: Path) -> bool:
    """Tells whether a file has the name that `_temporary_of` gives."""
    return (
        re.search(r"-[0-9a-f]{8}$", file.name) is not None
        and file.is_file()
        and not file.is_symlink()
    )
