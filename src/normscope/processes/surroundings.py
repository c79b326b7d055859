"""The surroundings of a process: others of one training, the command that started it, and who has a
folder.

A lock lets one process at a time work in a folder; it ends with the process that holds it, and says
who holds it. The folder itself is locked too, where the file system can: a lock file that somebody
removes lets nobody else in. Whoever only looks asks `is_held`, which locks it for a moment.
"""

import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..limits import kinds
from ..limits.ours import refuse_other

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def interpreter() -> list[str]:
    """Returns the words that start our processes: without -P, files of the current folder would
    stand for modules.
    """
    return [sys.executable, "-P"]


def launched_together() -> int:
    """Returns how many processes torchrun, or a launcher that sets the same, has started for one
    training; 1 without it.
    """
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in _VARIABLES) else 1


def rank_of_environment() -> int:
    """Returns the number of this process among them, counted from 0 over all machines; 0 for one
    that is alone.
    """
    return int(os.environ["RANK"]) if launched_together() > 1 else 0


VARIABLE = "NORMSCOPE_LIFELINE"
"""Set, to its parent's number, for a process that is to end with its parent."""
_LOOK_SECONDS = 1.0


def with_lifeline(environment: dict[str, str]) -> dict[str, str]:
    """Returns the environment of a process that this one starts, and that is to end with it."""
    return environment | {VARIABLE: str(os.getpid())}


def hold_lifeline() -> None:
    """Has this process asked to stop, as SIGTERM does, when the one that started it `with_lifeline`
    is gone.
    """
    # Its own processes have other parents.
    if (parent := os.environ.pop(VARIABLE, None)) is not None:
        threading.Thread(target=_watch, args=[int(parent)], daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


LOCK = ".lock"
"""The file that is locked, in the folder."""
_TRIES, _TRY_SECONDS = 5, 0.02


class Held(Exception):
    """The error that another process works in the folder. `holder` is " (PID on HOST, since TIME)",
    or empty where it is not known.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(f"held{holder}")
        self.holder = holder


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold a folder that is there. Raises Held where another process has it, and OSError as writing
    does.
    """
    refuse_other(folder / LOCK, kinds.LOCK)
    # Not emptied by opening: it may say who holds it.
    with ExitStack() as opened:
        descriptor = os.open(folder, os.O_RDONLY)
        opened.callback(os.close, descriptor)
        try:
            with _unless_held():
                _lock(descriptor)
            handle = opened.enter_context((folder / LOCK).open("a+", encoding="utf-8"))
            _lock(handle.fileno())
        except BlockingIOError as error:
            pid, host, since = _holder(folder)
            raise Held(f" ({pid} on {host}, since {since})" if pid else "") from error
        handle.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        handle.write(
            json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}) + "\n"
        )
        handle.flush()
        yield


def _lock(descriptor: int) -> None:
    """Takes the lock. Raises BlockingIOError where another process has it for longer than one that
    only looks.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not tries_left:
                raise
            time.sleep(_TRY_SECONDS)


@contextmanager
def _unless_held() -> Iterator[None]:
    """Network file systems may not lock a folder, and then the file in it says all."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError:
        pass


def is_held(folder: Path) -> bool:
    """Tells whether another process works in this folder, such as one that trains the run that it
    holds.

    For the moment of the question the lock is shared; a process that asks for it then tries again.
    """
    for path in (folder / LOCK, folder):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            with _unless_held():
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def halted(folder: Path) -> int | None:
    """Returns the process that holds the folder where it is of this machine and a signal has halted
    it, as SIGSTOP does.
    """
    pid, host, _ = _holder(folder)
    try:
        stat = (
            Path(f"/proc/{int(pid)}/stat").read_text(encoding="utf-8")
            if host == socket.gethostname()
            else ""
        )
    except (OSError, ValueError):
        return None
    return int(pid) if stat.rpartition(")")[2].split()[:1] == ["T"] else None


def _holder(folder: Path) -> tuple[str, str, str]:
    """Process, host and since when, as whoever holds a folder wrote there; empty where it has not
    come to that yet.
    """
    try:
        held = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        return str(held["pid"]), str(held["host"]), str(held["since"])
    except (OSError, ValueError, TypeError, KeyError):
        return "", "", ""
