"""Jobs as processes of this machine, each started from nothing."""

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from ..processes.surroundings import interpreter, with_lifeline
from .seam import Engine, Job


@dataclass(frozen=True, slots=True)
class Process:
    """A started process, and what must be closed behind it."""

    popen: subprocess.Popen[bytes]
    log: IO[bytes]

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
        """In threads of its own."""
        log = job.log.open("ab")
        try:
            # A session of its own, so that Ctrl-C reaches the jobs through us alone and each can save.
            popen = subprocess.Popen(
                [*interpreter(), *job.words],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.PIPE,
                env=with_lifeline(os.environ | in_threads(job.threads)),
                start_new_session=True,
            )
        except OSError:
            log.close()
            raise
        return Process(popen, log)

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
