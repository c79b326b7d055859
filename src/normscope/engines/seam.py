"""The seam between what is to run and where it runs: a job goes in, a future comes out.

Whoever drives a grid knows no engine by its name: it starts jobs, asks their futures for the exit
code, and stops them.
"""

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Protocol

from ..processes.surroundings import interpreter, with_lifeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command whose whole state is a run's folder, so that it may end anywhere, and be started
    again elsewhere.
    """

    name: str
    words: Sequence[str]
    """The words after the Python interpreter."""
    configuration: str
    """The text at its standard input."""
    directory: Path
    """The folder in which its relative paths begin."""
    folder: Path
    """The folder of the run, which the command locks while it works on it."""
    log: Path
    """The file to which its output is added. The folder is there."""
    threads: int
    """The number of CPU threads."""
    modules: Sequence[str] = ()
    """The modules that it imports beside those of every training."""


class Future(Protocol):
    """A job that was started."""

    def code(self) -> int | None:
        """Returns the exit code once the job has ended, minus the signal's number where one killed
        it; None until then.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestMachine:
    """The machine with the most memory for a job."""

    memory_bytes: int
    words: str
    """The description of the machine, such as "the largest machine of the cluster"."""


class Engine(ABC):
    """Starts jobs, wherever they run."""

    at_once: int | None = None
    """The number of jobs that it is given at a time; None for all."""
    processes_per_run: int = 1
    """The number of processes that train one run together."""
    queues: bool = False
    """True where a job may wait in a queue of the engine's own after it was started."""
    outlived: bool = False
    """True where its jobs go on when this process has ended."""

    counted: bool = False
    """True where the processor's time of its jobs counts as that of this process's children once it
    is closed.
    """

    @abstractmethod
    def start(self, job: Job) -> Future:
        """Starts a job. Raises OSError where this machine cannot, and UserError where the engine
        does not take it.
        """

    @abstractmethod
    def stop(self, futures: Sequence[Future]) -> None:
        """Asks jobs to save and end, and waits until they have; an engine that is outlived leaves
        them going.
        """

    def largest_machine(self) -> "LargestMachine | None":
        """Returns the most memory that a job may get; None where that is not known."""
        return None

    def close(self) -> None:
        """Lets go of what the engine holds; no job of it is under way."""
        return


def in_threads(threads: int) -> dict[str, str]:
    """Returns the variables by which the libraries of a process start as many threads."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def process_of(job: Job, more: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Starts a process from nothing that does a job, and returns it. Raises OSError.

    more: of its environment, beside that of this process. Should this process be killed, that one
    saves and ends.
    """
    environment = {**os.environ, **in_threads(job.threads), **more}
    with job.log.open("ab") as log, TemporaryFile() as given:
        # Whole before there is a process to read it, and gone with it, whichever of the two is
        # killed.
        given.write(job.configuration.encode())
        given.seek(0)
        # A session of its own, so that Ctrl-C reaches the jobs through us alone and each can save.
        return subprocess.Popen(
            [*interpreter(), *job.words],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=given,
            cwd=job.directory,
            env=with_lifeline(environment),
            start_new_session=True,
        )


def note(job: Job, line: str) -> None:
    """Adds a line to what a job has said."""
    with job.log.open("a", encoding="utf-8") as log:
        log.write(f"{line}\n")


def said_at_the_end(code: int, log: Path) -> str:
    """Returns the last line that a failed job has said, and the signal that killed it, if one
    did.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1] if lines else "no output"
    if code >= 0:
        return last
    return f"killed by {signal.Signals(-code).name}; the last it said: {last}"
