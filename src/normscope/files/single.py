"""One file that is written whole or not at all: beside its place, and renamed into it."""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO

from ..limits.kinds import FileKind
from ..limits.ours import refuse_other, refuse_unusual
from .disk import naming, sync

UNFINISHED = ".unfinished-"
"""What the names of files and folders begin with until they are whole."""


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
    """As `write_atomically`, where a file of the user's may stand: over one of ours of this kind,
    an empty or an equal one, and no other.
    """
    content = content if isinstance(content, bytes) else content.encode()
    refuse_other(path, kind, content)
    write_atomically(path, content)


def _temporary_of(path: Path, made: list[Path]) -> int:
    """A new file beside `path` for its next content, held by this process; those that killed ones
    left are removed.

    Its name is in `made` before it is there, so that a signal that comes while it is made does not
    leave it.
    """
    for left in filter(is_temporary, path.parent.glob(f"{UNFINISHED}{escape(path.name)}-????????")):
        with suppress(OSError), left.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()
    while True:
        # A name of its own for every writer: two processes that write the same page must not share
        # a temporary file.
        made.append(path.with_name(f"{UNFINISHED}{path.name}-{secrets.token_hex(4)}"))
        try:
            handle = os.open(made[-1], os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            made.pop()  # another process's
            continue
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(
            handle
        )  # another process took it for one that was left, in the moment before it was held


def is_temporary(file: Path) -> bool:
    """Whether a file has the name that `_temporary_of` gives."""
    return (
        re.search(r"-[0-9a-f]{8}$", file.name) is not None
        and file.is_file()
        and not file.is_symlink()
    )
