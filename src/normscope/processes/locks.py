"""One process at a time in a folder: a lock that ends with the process that holds it, and that says who holds it."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"
"""The file that is locked, in the folder."""


class Held(Exception):
    """Another process works in the folder. `holder` is " (PID on HOST, since TIME)", or empty where it is not known."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"held{holder}")
        self.holder = holder


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold a folder that is there. Raises Held where another process has it, and OSError as writing does."""
    # Not emptied by opening: it may say who holds it.
    with (folder / LOCK).open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Held(_holder(folder / LOCK)) from error
        handle.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        handle.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}) + "\n")
        handle.flush()
        yield


def is_held(folder: Path) -> bool:
    """Whether another process works in this folder, such as one that trains the run that it holds.

    For the moment of the question the lock is shared, so that a process which asks for it then is refused.
    """
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


def _holder(file: Path) -> str:
    """Who holds a lock, as it wrote there; empty where it has not come to that yet."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        return f" ({held['pid']} on {held['host']}, since {held['since']})"
    except (OSError, ValueError, TypeError, KeyError):
        return ""
