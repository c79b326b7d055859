"""The process that jobs are forked from: `python -m normscope.engines.forking DESCRIPTOR MODULE…`,
the number of a connection to whoever asks, and what jobs import beside what every training does.

It computes nothing and starts no thread, so that each job finds the modules as they are after their
import, and has the bits of a process from nothing without the seconds that importing torch takes.
A job that dies takes nothing else with it.
"""

import atexit
import contextlib
import gc
import importlib
import os
import runpy
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from tempfile import TemporaryFile
from typing import Any

from ..processes.surroundings import with_lifeline
from ..signals import HANDLED

_NEEDED = (
    "torch._dynamo",  # which every optimiser imports with its first step
    "torch.utils.tensorboard",
    "normscope.adapters.tensorboard",
    "normscope.cli.main",
    "normscope.cli.train",
    "normscope.runs.run",
    "normscope.tasks.registry",
)
"""The modules that every training imports."""
READY = 0
"""The number of no job: jobs are counted from 1."""


def main() -> None:
    """Serves; in a process that was forked, is the command that was asked for."""
    words = serve(Connection(int(sys.argv[1])), sys.argv[2:])
    if words is not None:
        _end(_code_of(words))


def serve(asking: Connection, modules: Sequence[str] = ()) -> list[str] | None:
    """Forks a process for every request; returns its words in that process, and None here once
    nobody asks any more.

    modules: to import beside what every training does.

    A request is ("start", number, what is asked) or ("signal", number, signal); an answer is the
    pair (number, exit code) of a job that has ended, and before all others `READY`, once all is
    imported. The number is the asker's.
    """
    # Who asks is told by its own signals, and closes the connection.
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in HANDLED}
    for name in (*_NEEDED, *modules):
        with contextlib.suppress(ImportError):  # an extra that is not installed is told by a job
            importlib.import_module(name)
    _read_what_identifies_the_source()
    with contextlib.suppress(ConnectionError):  # who asked may have gone meanwhile
        asking.send((READY, 0))
    gc.freeze()  # what is here is shared by all jobs until one of them writes to it
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    numbers: dict[int, int] = {}  # by process, of those that have not ended
    while True:
        ready = wait([asking, woken])
        if woken in ready:
            os.read(woken, 4096)
            _tell_the_ended(asking, numbers)
        if asking not in ready:
            continue
        try:
            kind, number, asked = asking.recv()
        except (EOFError, ConnectionError):
            return None
        if kind == "signal":
            _send(asked, number, numbers)
            continue
        lifeline = with_lifeline({})
        process = os.fork()
        if process:
            numbers[process] = number
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for handled, handler in handlers.items():
            signal.signal(handled, handler)
        for descriptor in (woken, wakes):
            os.close(descriptor)
        asking.close()
        _begin(asked, lifeline)
        return list(asked["words"])


def _code_of(words: list[str]) -> int:
    """Runs the command, a module and its arguments; returns its exit code, as Python would end with
    it.
    """
    sys.argv = words
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(code: int) -> None:
    """Ends this process as Python ends one, but for taking every module apart, which is half a
    second of the processor; multiprocessing ends what it forks in the same way.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _read_what_identifies_the_source() -> None:
    """A run names the hash of the source that made it, which is the one that is imported here."""
    importlib.import_module("normscope.provenance").provenance()


def _begin(asked: Mapping[str, Any], lifeline: Mapping[str, str]) -> None:
    """A session of its own, as a process that is started from nothing has, with its environment,
    folder, input and output.
    """
    os.setsid()
    os.environ.clear()
    os.environ.update({**asked["environment"], **lifeline})
    os.chdir(asked["directory"])
    with TemporaryFile() as given:
        given.write(asked["configuration"].encode())
        given.seek(0)
        os.dup2(given.fileno(), 0)
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for place in (1, 2):
        os.dup2(log, place)
    os.close(log)


def _send(signal_number: int, number: int, numbers: Mapping[int, int]) -> None:
    """Sends a signal to the process of a job that has not ended."""
    for process, its_number in numbers.items():
        if its_number == number:
            # It has not been waited for, so that no other process can have its number.
            os.kill(process, signal_number)


def _tell_the_ended(asking: Connection, numbers: dict[int, int]) -> None:
    while numbers:
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        # Where nobody asks any more, the next request says so.
        with contextlib.suppress(ConnectionError):
            asking.send((numbers.pop(process), os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main()
