"""Jobs as processes of this machine, forked from one that has imported torch: each is spared some seconds of a core."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .processes import in_threads
from .seam import Engine, Job

MESSAGE_BYTES = 1 << 17
"""Of a request or an answer at most; Linux takes no longer ones at once."""


@dataclass(slots=True, eq=False)
class Fork:
    """A job that a server has forked, and our end of the pipe by which it knows that we live."""

    server: "Server"
    pid: int
    lifeline: int


class Forks(Engine[Fork]):
    """Some at a time. Should this process be killed, they save and end too. It takes Linux."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._servers: dict[int, Server] = {}

    def start(self, job: Job) -> Fork:
        """The first job of a number of threads starts the process that all of them are forked from."""
        if job.threads not in self._servers:
            # Its libraries read the number when they are loaded.
            self._servers[job.threads] = Server(os.environ | in_threads(job.threads))
        return self._servers[job.threads].fork(job)

    def poll(self, running: Fork) -> int | None:
        """As of any engine."""
        return running.server.poll(running)

    def stop(self, running: Sequence[Fork]) -> None:
        """As of any engine."""
        for fork in running:
            if fork.server.poll(fork) is None:
                os.kill(fork.pid, signal.SIGTERM)
        for fork in running:
            fork.server.wait(fork)
        for server in self._servers.values():
            server.close()
        self._servers.clear()


class Server:
    """A process that forks jobs when asked to and says how they ended; it ends when its socket is closed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "normscope.engines.forking", str(theirs.fileno())],
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
        message = self._socket.recv(MESSAGE_BYTES, flags)
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
