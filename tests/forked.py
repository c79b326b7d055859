"""Commands as processes of their own that find torch imported: forked from a server that has
trained one update.

Python needs seconds of a core to import torch; the runs of these tests need a fraction of one. The
first such process of a test session starts the server; where pytest has workers, the process that
starts them does, one for all. `tiny.start` starts a process from nothing, for tests that are about
that.
"""

import atexit
import io
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from normscope.__main__ import main

if TYPE_CHECKING:
    from normscope.engines.seam import Job

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["warm"])
_ADDRESS = "NORMSCOPE_TESTS_SERVER"
_SAID, _NUMBERS = tempfile.TemporaryDirectory(), itertools.count()
# Or Python would do it at its end, with a warning.
atexit.register(_SAID.cleanup)


class Forked:
    """A function called in a process of its own, with what the tests use of `subprocess.Popen`."""

    stdin = None

    def __init__(
        self, function: Callable[..., None], *arguments: Any, out: Path, err: Path
    ) -> None:
        self._files = [out, err]
        address = serve()
        self._process = _SERVER.Process(
            target=_call, args=(function, arguments, self._files, address)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0)
        return self._process.exitcode

    def communicate(self, stdin: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:
        assert not stdin, "what it reads is given at its start"
        self.wait(timeout)
        out, err = (path.read_bytes() for path in self._files)
        return out, err

    def said(self) -> bytes:
        """What it has written on its standard error so far."""
        return self._files[1].read_bytes()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def serve() -> str:
    """Where the server is, which is started unless it runs; processes that are started later find
    it too.
    """
    if (address := os.environ.get(_ADDRESS)) is not None:
        _use(address)
        return address
    with _server_finds_warm():
        forkserver._forkserver.ensure_running()
    os.environ[_ADDRESS] = forkserver._forkserver._forkserver_address
    return os.environ[_ADDRESS]


def _use(address: str) -> None:
    """Python would have each process start a server of its own."""
    server = forkserver._forkserver
    if server._forkserver_address is None:
        # Sent to what is forked, as the end of a pipe by which the server knows that its starter
        # lives.
        server._forkserver_alive_fd = os.open(os.devnull, os.O_WRONLY)
    server._forkserver_address, server.ensure_running = address, lambda: None


def call(function: Callable[..., None], *arguments: Any) -> Forked:
    """Call a function of a module of `tests` in a process of its own."""
    number = next(_NUMBERS)
    out, err = (Path(_SAID.name) / f"{number}.{stream}" for stream in ("out", "err"))
    out.touch()
    err.touch()
    return Forked(function, *arguments, out=out, err=err)


def start(*words: str, cwd: Path | None = None, stdin: bytes = b"") -> Forked:
    """`normscope WORDS`, as `tiny.start`."""
    return call(_normscope, words, dict(os.environ), cwd or Path.cwd(), stdin)


@contextmanager
def pool_forks() -> Iterator[None]:
    """Within it runs of a grid are forked from the tests' own server, which has torch imported.

    They do not end with their parent: a test that kills it has the runs started as the product
    starts them.
    """
    from normscope.engines import local

    def forked(job: "Job", more: Mapping[str, str]) -> Forked:
        assert list(job.words[:2]) == ["-m", "normscope"]
        job.log.touch()
        environment = dict(os.environ) | {"OMP_NUM_THREADS": "1"} | dict(more)
        return Forked(
            _normscope,
            job.words[2:],
            environment,
            job.directory,
            job.configuration.encode(),
            out=job.log,
            err=job.log,
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "forks", lambda job: False)
        patch.setattr(local, "begun", forked)
        yield


@contextmanager
def _server_finds_warm() -> Iterator[None]:
    """Where it is started here: in one thread, with the tests' folder on its path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "PYTHONPATH",
            os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        )
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


def _call(
    function: Callable[..., None], arguments: tuple[Any, ...], files: list[Path], address: str
) -> None:
    os.setsid()
    os.environ[_ADDRESS] = address
    for number, path in enumerate(files, 1):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    function(*arguments)


def _normscope(
    words: Sequence[str], environment: dict[str, str], folder: Path, stdin: bytes
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["normscope", *words]
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        os.dup2(given.fileno(), 0)  # for what opens /dev/stdin
    with pool_forks():
        main()
