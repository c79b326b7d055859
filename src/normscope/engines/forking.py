"""The process that jobs are forked from: `python -m normscope.engines.forking SOCKET`, with the socket's number.

It computes nothing and starts no thread, so that what it forks finds torch as it is after its import.
"""

import contextlib
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Sequence

from ..processes.lifeline import with_lifeline
from ..signals import HANDLED

_MESSAGE_BYTES = 1 << 17
_DESCRIPTORS = 2
"""With a request come what the job reads as its standard input, and its log."""
_NEEDED = (
    "torch._dynamo",
    "normscope.cli.main",
    "normscope.cli.train",
    "normscope.runs.run",
    "normscope.tasks.registry",
)
"""What every training imports, if only with its optimiser's first step."""


def main() -> None:
    """Serve; in a process that was forked, be the command that was asked for."""
    words = serve(socket.socket(fileno=int(sys.argv[1])))
    if words is not None:
        sys.argv = ["normscope", *words]
        runpy.run_module("normscope", run_name="__main__", alter_sys=True)


def serve(asking: socket.socket) -> Sequence[str] | None:
    """Fork a process for every request; returns its words in that process, and None here once nobody asks any more."""
    # Who asks is told by its own signals, and closes the socket.
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in HANDLED}
    for name in _NEEDED:
        importlib.import_module(name)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    with selectors.DefaultSelector() as ready:
        ready.register(asking, selectors.EVENT_READ)
        ready.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd == woken:
                    os.read(woken, 4096)
                    _tell_the_ended(asking)
                    continue
                request, descriptors = _request(asking)
                if not request:
                    return None
                if pid := os.fork():
                    for descriptor in descriptors:
                        os.close(descriptor)
                    _tell(asking, {"forked": pid})
                    continue
                signal.set_wakeup_fd(-1)
                for number, handler in (*handlers.items(), (signal.SIGCHLD, signal.SIG_DFL)):
                    signal.signal(number, handler)
                for descriptor in (woken, wakes, asking.detach()):
                    os.close(descriptor)
                words: list[str] = json.loads(request)
                _begin(*descriptors)
                return words


def _begin(lifeline: int, log: int) -> None:
    """A session of its own, as a process that is started from nothing has, with its input and output."""
    os.setsid()
    for descriptor, place in ((lifeline, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, place)
    for descriptor in (lifeline, log):
        os.close(descriptor)
    os.environ.update(with_lifeline({}))


def _tell_the_ended(asking: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _tell(asking, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _request(asking: socket.socket) -> tuple[bytes, list[int]]:
    """Empty where nobody asks any more."""
    try:
        request, descriptors, _, _ = socket.recv_fds(asking, _MESSAGE_BYTES, _DESCRIPTORS)
    except ConnectionError:
        return b"", []
    return request, descriptors


def _tell(asking: socket.socket, answer: dict[str, int]) -> None:
    # Where nobody asks any more, the next request is empty.
    with contextlib.suppress(ConnectionError):
        asking.send(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
