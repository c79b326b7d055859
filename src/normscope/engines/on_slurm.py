"""Jobs as tasks of Slurm arrays, which go on without this process: whoever sees the folder sees how they fare."""

import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UserError
from ..files import disk_errors
from .array import Array, exit_code, tasks_of
from .seam import Engine, Job
from .settings import SlurmSettings

_LOOK_SECONDS = 5.0
"""Between two questions to the cluster, whatever the number of jobs."""
_PATIENCE_SECONDS = 60.0
"""For a file that another machine has written to be seen here."""
_SIGNALLED = 128
_GONE = 75
"""The exit code of a job that left the queue without one (EX_TEMPFAIL): the same command submits it again."""


@dataclass(slots=True, eq=False)
class Queued:
    """A job, and its task of an array once it was submitted."""

    job: Job
    task: str = ""
    """The array's number and the task's, as Slurm writes them: 123_4."""
    gone_since: float | None = None
    """When it was first not in the queue, by this process's clock; None where it is."""


class OnSlurm(Engine[Queued]):
    """All jobs at once: those started before one is asked for become an array. It takes the commands of Slurm."""

    outlived = True

    def __init__(self, settings: SlurmSettings) -> None:
        """Raises UserError where there are no commands of Slurm on this machine."""
        if missing := [command for command in ("sbatch", "squeue") if shutil.which(command) is None]:
            raise UserError(f"the engine slurm calls {' and '.join(missing)}, and this machine has no such command")
        self.settings = settings
        self._unsubmitted: list[Queued] = []
        self._queue: set[str] = set()
        self._looked = -_LOOK_SECONDS

    def start(self, job: Job) -> Queued:
        """A job that an earlier call has in the queue still is not submitted twice."""
        queued = Queued(job)
        submitted = set(tasks_of(job))
        if submitted and (there := submitted & self._in_queue(now=not self._queue)):
            queued.task = there.pop()
        else:
            self._unsubmitted.append(queued)
        return queued

    def poll(self, running: Queued) -> int | None:
        """As of any engine. Raises UserError where the cluster does not take the jobs."""
        self._submit()
        code = exit_code(running.job)
        if running.task in self._in_queue():
            running.gone_since = None
            # One that was asked to end may be in the queue again.
            return None if code is None or code > _SIGNALLED else code
        if code is not None:
            return code
        # One that has just ended may not have said so yet to this machine.
        running.gone_since = running.gone_since or time.monotonic()
        return _GONE if time.monotonic() - running.gone_since > _PATIENCE_SECONDS else None

    def stop(self, running: Sequence[Queued]) -> None:
        """Jobs in the queue go on; what was not submitted yet is not."""
        self._unsubmitted.clear()

    def _submit(self) -> None:
        if not self._unsubmitted:
            return
        jobs = [queued.job for queued in self._unsubmitted]
        with disk_errors(f"writing into {jobs[0].log.parents[1]}"):
            array = Array.written(jobs, self.settings)
        command = ["sbatch", "--parsable", str(array.script)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"sbatch did not take {array.script}: {' '.join(done.stderr.split())}")
        number = done.stdout.strip().partition(";")[0]
        array.note(number)
        for place, queued in enumerate(self._unsubmitted):
            queued.task = f"{number}_{place}"
        self._queue |= {queued.task for queued in self._unsubmitted}
        self._unsubmitted = []
        self._looked = time.monotonic()

    def _in_queue(self, *, now: bool = False) -> set[str]:
        if now or time.monotonic() - self._looked >= _LOOK_SECONDS:
            asked = ["squeue", "--noheader", "--array", "--format=%i", "--me"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            if done.returncode == 0:  # a controller that does not answer for a while says nothing of the jobs
                self._queue = set(done.stdout.split())
            self._looked = time.monotonic()
        return self._queue
