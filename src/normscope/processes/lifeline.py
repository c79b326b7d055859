"""Runs end with the command that started them: each watches a pipe whose other end that command alone holds.

However the command ends, even by SIGKILL, the system closes its end of the pipe. Importing this takes no time, because
every process of the command line asks for it first.
"""

import os
import signal
import threading

VARIABLE = "NORMSCOPE_LIFELINE"
"""Set for processes whose standard input is such a pipe."""


def with_lifeline(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a process whose standard input is a lifeline."""
    return environment | {VARIABLE: "stdin"}


def hold_lifeline() -> None:
    """Have this process asked to stop, as SIGTERM does, when the one that started it is gone.

    Nothing happens in a process that was not started `with_lifeline`.
    """
    # Its own processes have other parents.
    if os.environ.pop(VARIABLE, None) is not None:
        threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
