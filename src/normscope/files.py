"""Writing that a kill or a full disk cannot leave half done."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from .errors import UserError

UNFINISHED = ".unfinished-"


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader, a kill or a power cut finds the old file or the new one, never a part."""
    # A name of its own for every writer: two processes that write the same page must not share a temporary file.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{UNFINISHED}{path.name}-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp lets only its owner read
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `path` when the block ends and disappears when it raises.

    Every file is on disk before the name is: after a kill there is the whole folder or none.
    """
    temporary = path.with_name(UNFINISHED + path.name)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in sorted(temporary.rglob("*")):
            sync(file)
        sync(temporary)
        if path.exists():
            remove_folder(path)
        temporary.rename(path)
        sync(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def remove_folder(path: Path) -> None:
    """Remove a folder so that a kill in the middle does not leave half of it under its name."""
    doomed = path.with_name(UNFINISHED + path.name + "-removed")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed)


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed process left half-written in `folder`."""
    for left in folder.glob(UNFINISHED + "*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def sync(path: Path) -> None:
    """Ask the operating system to put a file or a folder's entries on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn a full disk or a missing permission into a UserError that says what was being written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = error.errno if isinstance(error, OSError) else _number_in(str(error))
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UserError(f"{doing}: the disk is full; free some space and run the same command again") from error
        if number in (errno.EACCES, errno.EROFS, errno.EPERM):
            where = f" {error.filename}" if isinstance(error, OSError) and error.filename else ""
            raise UserError(f"{doing}: no permission to write{where}") from error
        if number in (errno.ENOTDIR, errno.EEXIST):
            raise UserError(f"{doing}: a file stands where a folder is needed; choose another place") from error
        raise


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _number_in(message: str) -> int | None:
    """safetensors raises no OSError but writes its number into a message: "... (os error 28)"."""
    found = re.search(r"os error (\d+)", message)
    return int(found[1]) if found else None
