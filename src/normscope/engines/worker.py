"""A worker: a process of this machine that has torch imported, and that forks one for every job."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from tempfile import TemporaryFile

from ..processes.surroundings import interpreter
from ..signals import HANDLED
from .forking import READY
from .seam import Job, in_threads, note

OURS = "normscope"
"""The package of the modules whose jobs a worker takes."""


@dataclass(slots=True, eq=False)
class Fork:
    """A process that a worker has forked for a job, with what an engine uses of
    `subprocess.Popen`.
    """

    worker: "Worker"
    number: int
    job: Job

    def poll(self) -> int | None:
        """Returns the exit code of a process that has ended; None until then."""
        return self.worker.code(self)

    def send_signal(self, signal_number: int) -> None:
        """Sends it a signal, unless it has ended."""
        self.worker.send_signal(self, signal_number)

    def terminate(self) -> None:
        """Asks it to save and end."""
        self.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Waits until it has ended; returns its exit code."""
        return self.worker.wait_for(self)


class Worker:
    """Forks a process for each job, as many at a time as it is asked for. It takes Linux."""

    def __init__(self, threads: int, modules: Sequence[str] = ()) -> None:
        """threads: of its jobs; their libraries read it when they are loaded, which is here.
        modules: as of a job.
        """
        self._asking, theirs = Pipe()
        self._said = TemporaryFile()  # noqa: SIM115
        with theirs:
            self._process = subprocess.Popen(
                [*interpreter(), "-m", f"{__package__}.forking", str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **in_threads(threads)},
                # Ctrl-C reaches its jobs through us alone.
                start_new_session=True,
            )
        self._count = 0
        self._codes: dict[int, int] = {}
        self._called_off: dict[int, int] = {}
        """Exit codes of jobs that were asked to end before any could begin."""
        self._lives = True

    @property
    def lives(self) -> bool:
        """True where the worker can be asked for more."""
        while self._lives and self._asking.poll():
            self._listen()
        return self._lives

    def start(self, job: Job, more: Mapping[str, str]) -> Fork:
        """Has a process forked for a job. more: as for `process_of`. Raises OSError where the log
        cannot be written, or where the worker has gone.
        """
        with job.log.open("ab"):
            pass
        asked = {
            "words": list(job.words[1:]),
            "configuration": job.configuration,
            "directory": str(job.directory),
            "log": str(job.log.absolute()),
            "environment": {**os.environ, **in_threads(job.threads), **more},
        }
        self._count += 1
        self._asking.send(("start", self._count, asked))
        return Fork(self, self._count, job)

    def send_signal(self, fork: Fork, signal_number: int) -> None:
        """Sends a job a signal, unless it has ended.

        While the worker still imports what jobs need, no job has begun, and what is asked of it
        waits, for half a minute where libraries come from the disk for the first time. Once all of
        its jobs are asked to end, it is killed: there is nothing to save.
        """
        if signal_number in HANDLED and self.lives and READY not in self._codes:
            self._called_off[fork.number] = 128 + signal_number
            if len(self._called_off) == self._count:
                self._process.kill()
                self._codes |= self._called_off
                self._lives = False
                return
        try:
            self._asking.send(("signal", fork.number, signal_number))
        except ConnectionError:
            return  # its jobs see that the worker has gone, and save and end

    def code(self, fork: Fork) -> int | None:
        """Returns the exit code of a job that has ended, and None until then; where the worker has
        gone, its own.
        """
        if fork.number in self._codes:
            return self._codes[fork.number]
        return self._known(fork, self.lives)

    def wait_for(self, fork: Fork) -> int:
        """Waits until a job has ended; returns as `code` does."""
        while self._lives and fork.number not in self._codes:
            self._listen()
        code = self._known(fork, self._lives)
        assert code is not None
        return code

    def close(self) -> None:
        """Ends the worker; its jobs, where there are any, save and end."""
        self._asking.close()
        self._process.wait()
        self._said.close()

    def _listen(self) -> None:
        try:
            number, code = self._asking.recv()
        except (EOFError, ConnectionError):
            self._lives = False
            return
        self._codes[number] = code

    def _known(self, fork: Fork, lives: bool) -> int | None:
        if not lives and fork.number not in self._codes:
            code = self._process.wait()
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").strip()
            note(fork.job, said or f"the process that starts runs has ended with {code}")
            # A job without an exit code of its own has not been done.
            self._codes[fork.number] = code or 1
        return self._codes.get(fork.number)
