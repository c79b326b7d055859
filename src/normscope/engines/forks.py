"""Jobs as processes of this machine, forked from one that has imported torch: each is spared some seconds of a core.

The process that they are forked from is `python -m normscope.engines.forks SOCKET`, with the socket's number. It
computes nothing and starts no thread, so that what it forks finds torch as it is after its import.
"""

import contextlib
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..processes.surroundings import interpreter, with_lifeline
from ..signals import HANDLED
from .seam import Engine, Job, in_threads

_MESSAGE_BYTES = 1 << 17
"""Of a request or an answer at most; Linux takes no longer ones at once."""


@dataclass(slots=True, eq=False)
class Fork:
    """A job that a server has forked, and our end of the pipe by which it knows that we live."""

    server: "_Server"
    pid: int
    lifeline: int


class Forks(Engine[Fork]):
    """Some at a time. Should this process be killed, they save and end too. It takes Linux."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._servers: dict[int, _Server] = {}

    def start(self, job: Job) -> Fork:
        """The first job of a number of threads starts the process that all of them are forked from."""
        if job.threads not in self._servers:
            # Its libraries read the number when they are loaded.
            self._servers[job.threads] = _Server(os.environ | in_threads(job.threads))
        return self._servers[job.threads].fork(job)

    def poll(self, running: Fork) -> int | None:
        """As of any engine."""
        return running.server.poll(running)

    def stop(self, running: Sequence[Fork]) -> None:
        """As of any engine."""
        for fork in running:
            if fork.server.poll(fork) is None:
                os.kill(fork.pid, signal.SIGTERM)
                os.kill(fork.pid, signal.SIGCONT)  # one that was halted saves too
        for fork in running:
            fork.server.wait(fork)
        for server in self._servers.values():
            server.close()
        self._servers.clear()


class _Server:
    """A process that forks jobs when asked to and says how they ended; it ends when its socket is closed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*interpreter(), "-m", "normscope.engines.forks", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,
            )
        self._codes: dict[int, int] = {}
        self._lives = True

    def fork(self, job: Job) -> Fork:
        """Raises OSError where the log cannot be opened, or where the server has gone."""
        if list(job.words[:2]) != ["-m", "normscope"]:
            raise ValueError(f"forks are of our own commands, got {list(job.words)}")
        read_end, write_end = os.pipe()
        try:
            with job.log.open("ab") as log:
                request = json.dumps(list(job.words[2:])).encode()
                socket.send_fds(self._socket, [request], [read_end, log.fileno()])
            while "forked" not in (answer := self._answer()):
                pass
        except OSError:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        return Fork(self, answer["forked"], write_end)

    def poll(self, fork: Fork) -> int | None:
        """The exit code of a fork that has ended, None until then; minus SIGKILL where the server was killed first."""
        while self._lives and fork.pid not in self._codes:
            try:
                self._answer(socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError:
                self._lives = False
        self._hang_up(fork)
        return self._codes.get(fork.pid, -signal.SIGKILL)

    def wait(self, fork: Fork) -> None:
        """Until the fork has ended."""
        while self._lives and fork.pid not in self._codes:
            try:
                self._answer()
            except OSError:
                self._lives = False
        self._hang_up(fork)

    def close(self) -> None:
        """End the server."""
        self._socket.close()
        self._process.wait()

    def _answer(self, flags: int = 0) -> dict[str, Any]:
        """The next thing that it says. Raises OSError where it has gone."""
        message = self._socket.recv(_MESSAGE_BYTES, flags)
        if not message:
            raise ConnectionResetError("the process that starts runs has ended")
        answer: dict[str, Any] = json.loads(message)
        if "ended" in answer:
            self._codes[answer["ended"]] = answer["code"]
        return answer

    def _hang_up(self, fork: Fork) -> None:
        if fork.lifeline >= 0:
            os.close(fork.lifeline)
            fork.lifeline = -1


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
