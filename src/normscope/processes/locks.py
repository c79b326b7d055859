"""Whether a folder is being worked on: a lock in it ends with the process that holds it."""

import fcntl
from pathlib import Path

LOCK = ".lock"
"""The file that is locked, in the folder."""


def is_held(folder: Path) -> bool:
    """Whether another process works in this folder, such as one that trains the run that it holds."""
    try:
        handle = (folder / LOCK).open("rb")
    except OSError:
        return False
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
