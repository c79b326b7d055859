"""Clearing away: folders that are removed without half of one staying, and what a killed process
left of its work.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ..errors import UserError
from ..limits.ours import MARK, nothing_of_ours, refuse_foreign
from .disk import sync
from .single import UNFINISHED, is_temporary

REPLACED = ".replaced-"
"""The beginning of a folder's name while another folder takes its place, between two renames."""
Listed = Callable[[Path], Mapping[str, str]]
"""A function that returns what is ours in a folder, as `refuse_foreign` takes it."""


def remove(folder: Path, listed: Listed) -> None:
    """Remove what is ours in a folder, and the folder where nothing else is; a signal may come in
    the middle of it.
    """
    try:
        _unlink(folder, listed)
    finally:
        _unlink(folder, listed)


def _unlink(folder: Path, listed: Listed) -> None:
    if folder.is_symlink():
        return  # what it leads to is another folder, whatever a manifest there lists
    with suppress(OSError, UserError):
        there = {entry.name for entry in os.scandir(folder) if entry.name != MARK}
        *others, last = (listed(folder) if there else {}) or [MARK]
        # Of the names that are listed those that stand in the folder: none of them is a path.
        for name in [MARK, *(name for name in others if name in there)]:
            with suppress(OSError):
                (folder / name).unlink()
        if [entry.name for entry in os.scandir(folder)] == [last]:
            sync(folder)  # what says that the others were ours goes after them
            (folder / last).unlink()
        folder.rmdir()


def discard(work: Path) -> None:
    """Remove a folder of unfinished work, if it is there; what the disk refuses twice stays for
    `clear_unfinished`.
    """
    try:
        _empty(work)
    finally:  # a signal may have come in the middle of it
        _empty(work)


def _empty(work: Path) -> None:
    with suppress(OSError):
        for entry in work.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != MARK:
                with suppress(OSError):
                    entry.unlink()
        if [entry.name for entry in work.iterdir()] == [MARK]:
            sync(work)  # what says that the others were ours goes after them
            (work / MARK).unlink()
        work.rmdir()


def is_unfinished(path: Path) -> bool:
    """Tells whether a killed process of ours left this file or folder, of which nothing can be
    used.
    """
    if path.is_symlink() or not path.name.startswith(UNFINISHED):
        return False
    return (
        (path / MARK).is_file() or not any(path.iterdir()) if path.is_dir() else is_temporary(path)
    )


def recover(
    path: Path,
    of_use: Callable[[Path], bool] = lambda left: False,
    listed: Listed = nothing_of_ours,
) -> None:
    """Clear away what a killed process left of writing `path`, and put a folder back that it was
    about to replace.

    of_use: whether an unfinished folder holds work to go on with, and stays. listed: as of
    `whole_folder`. Raises UserError while another process is writing it, and for anything that is
    not ours in one of the places.
    """
    temporary, replaced = (path.with_name(prefix + path.name) for prefix in (UNFINISHED, REPLACED))
    if temporary.exists() or temporary.is_symlink():
        if not is_unfinished(temporary):
            raise UserError(
                f"{temporary} is not ours, and stands where {path} is made; move it to another name"
            )
        os.close(lock(temporary, path))
        if not of_use(temporary):
            discard(temporary)
    if replaced.exists() or replaced.is_symlink():
        refuse_foreign(replaced, listed)
        if path.exists():
            remove(replaced, listed)
        else:
            replaced.rename(path)
            sync(path.parent)
    refuse_foreign(path, listed)


def clear_unfinished(folder: Path, listed: Listed = nothing_of_ours) -> None:
    """Clear away what a killed process was writing or removing in `folder`. The caller holds a lock
    on it.

    listed: what is ours in a folder of which the removal was stopped.
    """
    for left in folder.glob(UNFINISHED + "*"):
        if not is_unfinished(left):
            remove(left, listed)
        elif left.is_dir():
            discard(left)
        else:
            left.unlink()


def remove_folder(path: Path, listed: Listed) -> None:
    """Remove a folder so that a kill or a power cut in the middle does not leave half of it under
    its name.

    Raises UserError where it holds anything that is not ours, as `refuse_foreign`.
    """
    refuse_foreign(path, listed)
    doomed = path.with_name(UNFINISHED + path.name + "-removed")
    remove(doomed, listed)
    path.rename(doomed)
    sync(path.parent)  # or its files might be gone from the disk before its name is
    remove(doomed, listed)


def lock(folder: Path, path: Path) -> int:
    """Hold `folder`, in which `path` is being made, by a descriptor. Raises UserError where another
    process does.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UserError(
            f"{path}: another process is writing it; wait for that one or choose another folder"
        ) from error
    return descriptor
