"""A folder appears whole or not at all: it is written beside its place, brought to the disk and renamed."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import UserError
from .manifest import MANIFEST

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}


def staging_path(out: Path) -> Path:
    """Where the folder grows until it is complete."""
    return out.with_name(f".{out.name}.preparing")


def replaced_path(out: Path) -> Path:
    """Where the folder that stood before lies between the two renames."""
    return out.with_name(f".{out.name}.replaced")


def recover(out: Path) -> None:
    """Clear away what a killed process left beside `out`, and put a folder back that it was about to replace.

    Raises UserError while another process is writing `out`, and where the leftovers cannot be removed.
    """
    staging, replaced = staging_path(out), replaced_path(out)
    with _told_to_the_user(out):
        if staging.exists():
            os.close(_lock(staging, out))
            shutil.rmtree(staging)
        if replaced.exists():
            if out.exists():
                shutil.rmtree(replaced)
            else:
                replaced.rename(out)


def check_replaceable(out: Path) -> None:
    """Raise UserError where `out` is a file, or a folder that holds something else than a corpus."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file; choose a folder for the corpus")
    try:
        foreign = out.is_dir() and not (out / MANIFEST).exists() and any(out.iterdir())
    except PermissionError as error:
        raise UserError(f"{out}: no permission to look into this folder; choose another") from error
    if foreign:
        raise UserError(f"{out}: holds something that is not a corpus, and stays; choose another folder or empty it")


@contextmanager
def replace_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `out` when the block ends well, and is removed when it does not.

    A folder that stood at `out` stays as it is until then. Call `recover` before. Raises UserError for a full disk, a
    place that cannot be written, and any other failure of the file system.
    """
    staging = staging_path(out)
    with _told_to_the_user(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir()
        try:
            # The lock tells a folder being written from one left by a killed process: it ends with its process.
            lock = _lock(staging, out)
            try:
                yield staging
                _publish(staging, out)
            finally:
                os.close(lock)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise


def _publish(staging: Path, out: Path) -> None:
    for path in sorted(staging.rglob("*"), reverse=True):
        _fsync(path)
    _fsync(staging)
    replaced = replaced_path(out)
    had_one = out.exists()
    if had_one:
        out.rename(replaced)
    try:
        staging.rename(out)
    except BaseException:
        if had_one:
            replaced.rename(out)
        raise
    _fsync(out.parent)
    if had_one:
        shutil.rmtree(replaced, ignore_errors=True)  # the new folder is in place; `recover` clears what stays


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(folder: Path, out: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UserError(f"{out}: another process is writing it; wait for that one or choose another folder") from error
    return descriptor


@contextmanager
def _told_to_the_user(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            free = "unknown"
            with suppress(OSError):
                free = f"{shutil.disk_usage(out.parent).free:,}"
            raise UserError(
                f"{out.parent}: the disk is full ({error.strerror}; {free} bytes are free now) and {out.name} was not "
                "made; make room or choose a folder on another disk"
            ) from error
        if error.errno in _NOT_WRITABLE:
            raise UserError(f"{out.parent}: not writable ({error.strerror}); choose another folder") from error
        raise UserError(f"{out}: cannot be written ({error}); choose another folder") from error
