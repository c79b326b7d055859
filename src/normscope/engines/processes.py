"""Jobs as processes, each started from nothing: on this machine, and of a worker of a cluster, which outlives none."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .. import __version__
from ..processes.surroundings import interpreter, is_held, with_lifeline
from .seam import Engine, Job


@dataclass(frozen=True, slots=True)
class Process:
    """A started process, and what must be closed behind it."""

    popen: subprocess.Popen[bytes]
    log: IO[bytes]

    @classmethod
    def started(cls, job: Job, words: Sequence[str]) -> "Process":
        """A job with other words, in threads of its own. Raises OSError."""
        log = job.log.open("ab")
        try:
            # A session of its own, so that Ctrl-C reaches the jobs through us alone and each can save.
            popen = subprocess.Popen(
                [*interpreter(), *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.PIPE,
                cwd=job.directory,
                env=with_lifeline(os.environ | in_threads(job.threads)),
                start_new_session=True,
            )
        except OSError:
            log.close()
            raise
        return cls(popen, log)

    def close(self) -> None:
        """Its log, and the pipe by which it knows that we live."""
        self.log.close()
        if self.popen.stdin is not None:
            self.popen.stdin.close()


class Processes(Engine[Process]):
    """Some at a time. Should this process be killed, they save and end too."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once

    def start(self, job: Job) -> Process:
        return Process.started(job, job.words)

    def poll(self, running: Process) -> int | None:
        """As of any engine."""
        code = running.popen.poll()
        if code is not None:
            running.close()
        return code

    def stop(self, running: Sequence[Process]) -> None:
        """As of any engine."""
        for process in running:
            if process.popen.poll() is None:
                process.popen.terminate()
                process.popen.send_signal(signal.SIGCONT)  # one that was halted saves too
        for process in running:
            process.popen.wait()
            process.close()


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
    job's sees its end of a pipe close, and saves and ends.
    """
    patience = time.monotonic() + _PATIENCE_SECONDS
    while is_held(job.folder):
        if time.monotonic() > patience:
            note(job, f"{job.folder} is still being trained by another process")
            return _LOCKED
        time.sleep(_LOOK_SECONDS)
    process = Process.started(job, with_devices(job.words, devices))
    try:
        while (code := process.popen.poll()) is None:
            time.sleep(_LOOK_SECONDS)
    except BaseException:
        process.popen.terminate()
        process.popen.wait()
        raise
    finally:
        process.close()
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
