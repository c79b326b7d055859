"""A job in a worker of a cluster, which may end anywhere and be started again anywhere else."""

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..processes.surroundings import is_held
from .seam import Job, note, process_of

_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 600.0
"""For a process that had the run before, and saves, to let go of its folder."""
LOCKED = 75
"""The exit code where it has not, as of a command that may be tried again (EX_TEMPFAIL)."""


@contextmanager
def _of_the_worker_alone() -> Iterator[None]:
    """A context in which processes begin deaf to the signals by which a cluster tells a worker that
    it is to go: Slurm sends them to every process of a job, and a run would end by them, unsaved.

    They are blocked and not ignored, so that one which arrives here meanwhile is not lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class CarriedJob:
    """A job whose process is started in a worker, and that can be asked to save there."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Does the job to its end; returns the exit code.

        It waits for a process that had the run before. What a cluster raises here to cancel it is
        passed on as a wish to save, and should this worker be killed, the process sees that it has
        gone, and saves and ends.
        """
        patience = time.monotonic() + _PATIENCE_SECONDS
        while is_held(self.job.folder):
            if time.monotonic() > patience:
                note(self.job, f"{self.job.folder} is still being trained by another process")
                return LOCKED
            time.sleep(_LOOK_SECONDS)
        with _of_the_worker_alone():
            self.process = process_of(self.job, {})
        try:
            while (code := self.process.poll()) is None:
                time.sleep(_LOOK_SECONDS)
        except BaseException:
            self.save()
            raise
        return code

    def save(self) -> None:
        """Asks the process to save and end, and waits until it has."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
