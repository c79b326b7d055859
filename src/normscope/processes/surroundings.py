"""What a process knows of those around it: its rank under torchrun, the command that started it, and who has a folder.

A lock lets one process at a time work in a folder; it ends with the process that holds it, and says who holds it.
The folder itself is locked too, where the file system can: a lock file that somebody removes lets nobody else in.
Whoever only looks sees from `SeenLocks` which folders are being worked on; on Linux that takes no lock.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..limits.ours import refuse_other

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def interpreter() -> list[str]:
    """What our processes are started by: without -P, files of the current folder would stand for modules."""
    return [sys.executable, "-P"]


def under_torchrun() -> bool:
    """Whether torchrun, or a launcher that sets the same, has started this process."""
    return all(name in os.environ for name in _VARIABLES)


def rank_of_environment() -> int:
    """Counted from 0 over all machines; 0 for a process that trains alone."""
    return int(os.environ["RANK"]) if under_torchrun() else 0


def size_of_environment() -> int:
    """How many processes train together."""
    return int(os.environ["WORLD_SIZE"]) if under_torchrun() else 1


VARIABLE = "NORMSCOPE_LIFELINE"
"""Set for processes whose standard input is such a pipe."""
LAUNCHER = "NORMSCOPE_LAUNCHER"
"""Set, to its parent's number, for a process that torch's launcher starts, which gives it no pipe."""
_LOOK_SECONDS = 1.0


def with_lifeline(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a process whose standard input is a lifeline."""
    return environment | {VARIABLE: "stdin"}


def hold_lifeline() -> None:
    """Have this process asked to stop, as SIGTERM does, when the one that started it is gone.

    Nothing happens in a process that was not started `with_lifeline`, or by the launcher of `LAUNCHER`.
    """
    # Its own processes have other parents.
    if os.environ.pop(VARIABLE, None) is not None:
        threading.Thread(target=_watch, daemon=True).start()
    if (launcher := os.environ.pop(LAUNCHER, None)) is not None:
        threading.Thread(target=_watch_parent, args=[int(launcher)], daemon=True).start()


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


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
    refuse_other(folder / LOCK)
    # Not emptied by opening: it may say who holds it.
    with ExitStack() as opened:
        descriptor = os.open(folder, os.O_RDONLY)
        opened.callback(os.close, descriptor)
        try:
            with _unless_held():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            handle = opened.enter_context((folder / LOCK).open("a+", encoding="utf-8"))
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Held(_holder(folder / LOCK)) from error
        handle.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        handle.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}) + "\n")
        handle.flush()
        yield


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
    """Whether another process works in this folder, such as one that trains the run that it holds.

    For the moment of the question the lock is shared, so that a process which asks for it then is refused.
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
    """The process that holds the folder where it is of this machine and a signal has halted it, as SIGSTOP does."""
    try:
        held = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        if held["host"] != socket.gethostname():
            return None
        state = Path(f"/proc/{int(held['pid'])}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return int(held["pid"]) if state == "T" else None


def _holder(file: Path) -> str:
    """Who holds a lock, as it wrote there; empty where it has not come to that yet."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        return f" ({held['pid']} on {held['host']}, since {held['since']})"
    except (OSError, ValueError, TypeError, KeyError):
        return ""


_KERNEL = Path("/proc/locks")
_QUESTION = "hhqqi4x"
"""`struct flock` of Linux: type, whence, start, length, process."""

_Place = tuple[int, int, int]
"""Major and minor number of a device, and an inode."""


@dataclass(frozen=True, slots=True)
class SeenLocks:
    """The locks of one moment.

    Not all are seen: one that another machine or another container holds may be known to its kernel alone.
    """

    places: frozenset[_Place] | None
    """None where the system does not list them."""

    @classmethod
    def now(cls) -> "SeenLocks":
        """Those that this machine's kernel lists."""
        try:
            lines = _KERNEL.read_text(encoding="ascii").splitlines()
        except OSError:
            return cls(None)
        # "1: FLOCK  ADVISORY  WRITE 10227 fe:00:2867467 0 EOF"; one that is waited for has "->" before its kind.
        return cls(frozenset(_place(line.split()[5]) for line in lines if "->" not in line and "WRITE" in line))

    def held(self, folder: Path) -> bool:
        """Whether a process is seen to work in the folder."""
        if self.places is None:
            return is_held(folder)
        file = folder / LOCK
        return self._is_listed(file) or self._is_listed(folder) or _is_held_over_the_network(file)

    def _is_listed(self, path: Path) -> bool:
        try:
            found = path.stat()
        except OSError:
            return False
        place = os.major(found.st_dev), os.minor(found.st_dev), found.st_ino
        return place in (self.places or ()) or self._elsewhere(place)

    def _elsewhere(self, place: _Place) -> bool:
        """On layered file systems a file's device is not the one of its locks; neither is one of hardware."""
        return place[0] == 0 and any(other[0] == 0 and other[2] == place[2] for other in self.places or ())


def _place(text: str) -> _Place:
    major, minor, inode = text.split(":")
    return int(major, 16), int(minor, 16), int(inode)


def _is_held_over_the_network(file: Path) -> bool:
    """Network file systems ask their server for such locks as those of `fcntl`, which can be asked about."""
    if sys.platform != "linux" or not file.is_file():
        return False
    with file.open("rb") as handle:
        asked = struct.pack(_QUESTION, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(struct.unpack(_QUESTION, fcntl.fcntl(handle, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
