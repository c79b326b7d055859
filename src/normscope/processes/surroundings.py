"""What a process knows of those around it: its rank under torchrun, and the command that started it.

A run ends with that command: it watches a pipe whose other end the command alone holds. However the command ends, even
by SIGKILL, the system closes that end. Importing this is fast, because every process of the command line does so first.
"""

import os
import signal
import sys
import threading
import time

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
