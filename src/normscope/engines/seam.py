"""The seam between what is to run and where it runs: start, poll, stop; a user's settings of the machines.

And jobs as processes, each started from nothing: on this machine, and of a worker of a cluster, which outlives none.
"""

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from .. import __version__
from ..processes.surroundings import interpreter, is_held, with_lifeline

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command whose whole state is a run folder, so that it may be ended anywhere and started again elsewhere."""

    name: str
    words: Sequence[str]
    """What follows the Python interpreter."""
    directory: Path
    """Where its relative paths begin: that of this process."""
    folder: Path
    """Of the run, which the command locks while it works on it."""
    log: Path
    """What it says is appended here. The folder is there."""
    threads: int
    """Of the CPU."""


class Engine(ABC, Generic[R]):
    """Starts jobs. R: what it knows a started job by."""

    at_once: int | None = None
    """How many jobs it is given at a time; None where it has a queue of its own, which takes all."""
    outlived: bool = False
    """Whether its jobs go on when this process has ended."""

    @abstractmethod
    def start(self, job: Job) -> R:
        """Raises OSError where the job cannot be started."""

    @abstractmethod
    def poll(self, running: R) -> int | None:
        """The exit code once the job has ended, minus the signal's number where one killed it; None until then."""

    @abstractmethod
    def stop(self, running: Sequence[R]) -> None:
        """Ask these jobs to save and end, wait until they have, and let go of what the engine holds.

        An engine whose jobs go on without this process leaves them going.
        """


AnyEngine = Engine[Any]
MakeEngine = Callable[[int], AnyEngine]
"""An engine, from how many jobs at a time this machine has room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """A cluster that is already there; none is started."""

    name: ClassVar[str] = "ray"
    address: str = "auto"
    """auto for the cluster of this machine or of RAY_ADDRESS."""
    cpus: int = 0
    """Of a run; 0 for as many as it has threads."""
    gpus: int = 0
    """Of a run. Those of several are processes on one machine, as of `normscope train --devices`."""
    retries: int = 3
    """How often a run whose worker or machine has gone goes on elsewhere. One that fails itself does not."""

    def __post_init__(self) -> None:
        for key in ("cpus", "gpus", "retries"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} must be 0 or more, got {getattr(self, key)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """What `sbatch` is asked for, for each run. Empty: what the cluster gives by itself."""

    name: ClassVar[str] = "slurm"
    partition: str = ""
    account: str = ""
    time: str = ""
    """Of one job, as Slurm writes it (minutes, or days-hours:minutes:seconds); a run takes as many as it needs."""
    memory: str = ""
    """As Slurm writes it, such as 8G."""
    gpus: int = 0
    """Of a run. Those of several are processes on one machine, as of `normscope train --devices`."""
    at_once: int = 0
    """Jobs that run at a time; 0 for no limit of ours."""
    seconds_to_save: int = 120
    """Before a job's time is up it is asked to save; it then takes its place in the queue again."""
    options: tuple[str, ...] = ()
    """Further options of sbatch, such as "--constraint=h100"."""

    def __post_init__(self) -> None:
        for key in ("gpus", "at_once"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} must be 0 or more, got {getattr(self, key)}")
        if self.seconds_to_save < 1:
            raise ValueError(f"seconds_to_save must be at least 1, got {self.seconds_to_save}")
        for key in ("partition", "account", "time", "memory", "options"):
            for text in [*self.options] if key == "options" else [getattr(self, key)]:
                if any(sign.isspace() for sign in text):
                    raise ValueError(f"{key}: options of sbatch are words without blanks, got {text!r}")
        if odd := [text for text in self.options if not text.startswith("--")]:
            raise ValueError(f"options must begin with --, got {odd}")


def _started(job: Job, words: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process of a job with other words, in threads of its own. Raises OSError."""
    with job.log.open("ab") as log:
        # A session of its own, so that Ctrl-C reaches the jobs through us alone and each can save.
        return subprocess.Popen(
            [*interpreter(), *words],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=job.directory,
            env=with_lifeline(os.environ | in_threads(job.threads)),
            start_new_session=True,
        )


class Processes(Engine[subprocess.Popen[bytes]]):
    """Some at a time. Should this process be killed, they save and end too."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once

    def start(self, job: Job) -> subprocess.Popen[bytes]:
        return _started(job, job.words)

    def poll(self, running: subprocess.Popen[bytes]) -> int | None:
        """As of any engine."""
        return running.poll()

    def stop(self, running: Sequence[subprocess.Popen[bytes]]) -> None:
        """As of any engine."""
        for process in running:
            if process.poll() is None:
                process.terminate()
                process.send_signal(signal.SIGCONT)  # one that was halted saves too
        for process in running:
            process.wait()


def in_threads(threads: int) -> dict[str, str]:
    """Variables by which the libraries of a process start as many threads."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 600.0
"""For a process that had the run before, and saves, to let go of its folder."""
_LOCKED = 75
"""The exit code where it has not, as of a command that may be tried again (EX_TEMPFAIL)."""


def run_job(job: Job, devices: int) -> int:
    """Run the job of a cluster's worker to its end; its exit code. devices: processes of one training, 0 for one.

    KeyboardInterrupt, by which a cluster cancels, is passed on as a wish to save. Should this process be killed, the
    job's sees that it has gone, and saves and ends.
    """
    patience = time.monotonic() + _PATIENCE_SECONDS
    while is_held(job.folder):
        if time.monotonic() > patience:
            note(job, f"{job.folder} is still being trained by another process")
            return _LOCKED
        time.sleep(_LOOK_SECONDS)
    process = _started(job, with_devices(job.words, devices))
    try:
        while (code := process.poll()) is None:
            time.sleep(_LOOK_SECONDS)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return code


def with_devices(words: Sequence[str], devices: int) -> list[str]:
    """A job's words, on several devices where it is a training that has several."""
    several = devices > 1 and list(words[:3]) == ["-m", "normscope", "train"]
    return [*words, "--devices", str(devices)] if several else list(words)


def seen_from_here(files: Sequence[Path]) -> dict[str, Any]:
    """What this machine sees of files that were just written elsewhere, and who says so; None of what it does not."""
    contents: list[str | None] = []
    for file in files:
        try:
            contents.append(file.read_text(encoding="utf-8"))
        except OSError:
            contents.append(None)
    return {"host": socket.gethostname(), "contents": contents, "normscope": __version__}


def note(job: Job, line: str) -> None:
    """Add a line to what a job has said."""
    with job.log.open("a", encoding="utf-8") as log:
        log.write(f"{line}\n")
