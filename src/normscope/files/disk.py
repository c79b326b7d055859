"""Disks that fail: what is on one for certain, and what a failure says to the user."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from ..errors import UserError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EROFS, errno.EPERM}
_NO_PLACE = {errno.ENAMETOOLONG, errno.ELOOP}
_TOO_MANY = {errno.EMFILE, errno.ENFILE}
_FAILING = {
    errno.EIO,
    errno.ENXIO,
    errno.ENODEV,
    errno.ESTALE,
    errno.EINTR,
    errno.ETIMEDOUT,
    errno.ENOLCK,
}


def sync(path: Path) -> None:
    """Ask the operating system to put a file or a folder's entries on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an OSError the file's name where it has none: that of an open file's descriptor is not
    in it.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn what the user can mend (a full or failing disk, a missing permission, a wrong place)
    into a UserError.

    doing: what was being written, such as "saving runs/mine".
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = error.errno if isinstance(error, OSError) else _number_in(str(error))
        file = error.filename if isinstance(error, OSError) else None
        advice = _advice(number, None if file is None or str(file) in doing else str(file))
        if advice is None:
            raise
        raise UserError(f"{doing}: {advice}") from error


def is_of_the_disk(error: UserError) -> bool:
    """Tells whether the system failed to read what is there, so that another try may succeed; a
    damaged file stays damaged.
    """
    return isinstance(error.__cause__, OSError) and not isinstance(
        error.__cause__, FileNotFoundError
    )


def _advice(number: int | None, file: str | None) -> str | None:
    """Returns what happened and what to do, for an errno; None where the user cannot fix it."""
    at = f" at {file}" if file else ""
    if number in _FULL:
        return f"the disk is full{at}; free some space and run the same command again"
    if number in _FORBIDDEN:
        why = " (the disk can only be read)" if number == errno.EROFS else ""
        return (
            f"no permission to write{f' {file}' if file else ''}{why}; change that, or choose "
            "another place"
        )
    if number in (errno.ENOTDIR, errno.EEXIST):
        return f"a file stands where a folder is needed{at}; choose another place"
    if number in _NO_PLACE:
        return (
            f"the system takes no such path{at} ({os.strerror(number or 0)}); choose another place"
        )
    if number in _TOO_MANY:
        return (
            f"no further file may be opened{at} ({os.strerror(number or 0)}); allow more, as "
            "`ulimit -n 4096` does, or end what holds them, and run the same command again"
        )
    if number in _FAILING:
        return (
            f"the disk failed{at} ({os.strerror(number or 0)}); nothing that was whole before is "
            "lost. Run the same command again when the disk is in order, or choose another one"
        )
    return None


def _number_in(message: str) -> int | None:
    """safetensors raises no OSError but writes its number into a message: "... (os error 28)"."""
    found = re.search(r"os error (\d+)", message)
    return int(found[1]) if found else None
