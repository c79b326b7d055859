"""A job in a worker of a cluster, which may end anywhere and be started again anywhere else."""

import subprocess
import time

from ..processes.surroundings import is_held
from .seam import Job, note, process_of

_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 600.0
"""For a process that had the run before, and saves, to let go of its folder."""
LOCKED = 75
"""The exit code where it has not, as of a command that may be tried again (EX_TEMPFAIL)."""


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
