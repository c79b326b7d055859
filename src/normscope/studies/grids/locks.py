"""One command a comparison at a time, and one process a run: locks that end with the process that holds them."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import UserError, option
from ...files import disk_errors, make_folders
from ...processes.locks import LOCK


@contextmanager
def alone(folder: Path, doing: str) -> Iterator[None]:
    """Hold a folder, which is made if need be, for this command. Raises UserError naming the process that has it.

    doing: what is done in it, such as "comparison".
    """
    with disk_errors(f"opening {folder}"):
        make_folders(folder)
        # Not emptied by opening: it may say who holds it.
        handle = (folder / LOCK).open("a+", encoding="utf-8")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another process{_holder(handle.name)} is at work on the {doing} in {folder}; wait for it, stop it, "
                f"or choose another folder with {option('out')}"
            ) from error
        with disk_errors(f"writing into {folder}"):
            handle.truncate(0)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            handle.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}) + "\n")
            handle.flush()
        yield


def _holder(file: str) -> str:
    """Who holds a lock, as it wrote there; empty where it has not come to that yet."""
    try:
        held = json.loads(Path(file).read_text(encoding="utf-8"))
        return f" ({held['pid']} on {held['host']}, since {held['since']})"
    except (OSError, ValueError, TypeError, KeyError):
        return ""
