"""Jobs as tasks of Slurm arrays, which go on without this process: whoever sees the folder sees how they fare.

All of it is in `slurm/` beside the runs: `array-WORD.sh` and `array-WORD.json` are what `sbatch` was given,
`array-WORD.number` is the number that it gave back, and `NAME.code` is the exit code of a job that has ended. A task of
an array is `python -m normscope.engines.slurm SCRIPT TASK`.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import disk_errors, make_folders, write_atomically
from ..limits.ours import SealedJson
from ..processes.surroundings import interpreter
from ..signals import Stopped, raising_stopped
from .seam import Engine, Job, SlurmSettings, run_job

_JOBS = SealedJson(
    format_name="normscope-jobs",
    version=1,
    keys=frozenset({"devices", "jobs"}),
    again="cancel its array, remove the file, and give the same command again: it submits what is not finished",
)


@dataclass(frozen=True, slots=True)
class JobArray:
    """Jobs that are submitted together."""

    script: Path

    @classmethod
    def written(cls, jobs: Sequence[Job], settings: SlurmSettings) -> "JobArray":
        """The script and its jobs, in the folder of the first. Raises UserError, and OSError as writing does."""
        script = _folder(jobs[0]) / f"array-{uuid.uuid4().hex[:8]}.sh"
        text = _script(script, jobs, settings)
        for job in jobs:
            make_folders(_folder(job))
            _code_file(job).unlink(missing_ok=True)
        table = {"devices": settings.gpus, "jobs": [_as_json(job) for job in jobs]}
        write_atomically(script.with_suffix(".json"), _JOBS.text(table))
        write_atomically(script, text)
        return cls(script)

    def note(self, number: str) -> None:
        """Write down the number that Slurm has given it."""
        write_atomically(self.script.with_suffix(".number"), number + "\n")

    def job(self, place: int) -> tuple[Job, int]:
        """The job of a task, and the devices that it has. Raises UserError for a damaged file."""
        table = _JOBS.read(self.script.with_suffix(".json"))
        return _of_json(table["jobs"][place]), int(table["devices"])


def exit_code(job: Job) -> int | None:
    """Of a job that has ended and said so; None before."""
    try:
        return int(_code_file(job).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def keep_exit_code(job: Job, code: int | None) -> None:
    """Write down how a job has ended; None where it begins again."""
    if code is None:
        _code_file(job).unlink(missing_ok=True)
    else:
        write_atomically(_code_file(job), f"{code}\n")


def tasks_of(job: Job) -> list[str]:
    """Every task, as Slurm writes it (123_4), that was submitted to work on the job's run.

    Raises UserError for a damaged file.
    """
    found = []
    for number in sorted(_folder(job).glob("array-*.number")):
        places = [
            place
            for place, one in enumerate(_JOBS.read(number.with_suffix(".json"))["jobs"])
            if one["name"] == job.name
        ]
        # One that is damaged names no task of the queue, and the job is submitted again.
        found += [f"{number.read_text(encoding='utf-8', errors='replace').strip()}_{place}" for place in places]
    return found


def _folder(job: Job) -> Path:
    return job.log.parents[1] / "slurm"


def _code_file(job: Job) -> Path:
    return _folder(job) / f"{job.name}.code"


def _script(script: Path, jobs: Sequence[Job], settings: SlurmSettings) -> str:
    """Our process takes the shell's place, so that it is the one that Slurm signals."""
    limit = f"%{settings.at_once}" if settings.at_once else ""
    asked = {
        "job-name": "normscope",
        "array": f"0-{len(jobs) - 1}{limit}",
        "cpus-per-task": max(job.threads for job in jobs),
        "gpus": settings.gpus or "",
        "partition": settings.partition,
        "account": settings.account,
        "time": settings.time,
        "mem": settings.memory,
        "signal": f"B:TERM@{settings.seconds_to_save}",
        "chdir": jobs[0].directory,
        # Slurm fills in what follows a %, but for a second one.
        "output": f"{str(script.parent).replace('%', '%%')}/%A_%a.txt",
    }
    lines = [f"--{key}={shlex.quote(str(value))}" for key, value in asked.items() if value != ""]
    lines += ["--requeue", "--open-mode=append", *settings.options]
    command = [*interpreter(), "-m", "normscope.engines.slurm", str(script)]
    for line in (*lines, *command):
        # sbatch and the shell take what follows a newline for a line of its own, quoted or not.
        if any(ord(character) < ord(" ") and character != "\t" for character in line):
            raise UserError(
                f"{line!r} has a newline or another control character, which a script of Slurm cannot hold: rename the "
                "folder or change the option"
            )
    return "\n".join(
        ["#!/bin/sh", *(f"#SBATCH {line}" for line in lines), f'exec {shlex.join(command)} "$SLURM_ARRAY_TASK_ID"', ""]
    )


def _as_json(job: Job) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(job).items()}


def _of_json(table: dict[str, Any]) -> Job:
    return Job(**table | {name: Path(table[name]) for name in ("directory", "folder", "log")})


_LOOK_SECONDS = 5.0
"""Between two questions to the cluster, whatever the number of jobs."""
_PATIENCE_SECONDS = 60.0
"""For a file that another machine has written to be seen here."""
_SIGNALLED = 128
_GONE = 75
"""The exit code of a job that left the queue without one (EX_TEMPFAIL): the same command submits it again."""


@dataclass(slots=True, eq=False)
class _QueuedJob:
    """A job, and its task of an array once it was submitted."""

    job: Job
    task: str = ""
    """The array's number and the task's, as Slurm writes them: 123_4."""
    gone_since: float | None = None
    """When it was first not in the queue, by this process's clock; None where it is."""


class OnSlurm(Engine[_QueuedJob]):
    """All jobs at once: those started before one is asked for become an array. It takes the commands of Slurm."""

    outlived = True

    def __init__(self, settings: SlurmSettings) -> None:
        """Raises UserError where there are no commands of Slurm on this machine."""
        if missing := [command for command in ("sbatch", "squeue") if shutil.which(command) is None]:
            raise UserError(
                f"the engine slurm calls {' and '.join(missing)}, and this machine has no such command: give this "
                "where jobs are submitted; `normscope compare … --dry-run` writes the script anywhere"
            )
        self.settings = settings
        self._unsubmitted: list[_QueuedJob] = []
        self._queue: set[str] = set()
        self._looked = -_LOOK_SECONDS

    def start(self, job: Job) -> _QueuedJob:
        """A job that an earlier call has in the queue still is not submitted twice."""
        queued = _QueuedJob(job)
        submitted = set(tasks_of(job))
        if submitted and (there := submitted & self._in_queue(now=not self._queue)):
            queued.task = there.pop()
        else:
            self._unsubmitted.append(queued)
        return queued

    def poll(self, running: _QueuedJob) -> int | None:
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

    def stop(self, running: Sequence[_QueuedJob]) -> None:
        """Jobs in the queue go on; what was not submitted yet is not."""
        self._unsubmitted.clear()

    def _submit(self) -> None:
        if not self._unsubmitted:
            return
        jobs = [queued.job for queued in self._unsubmitted]
        with disk_errors(f"writing into {jobs[0].log.parents[1]}"):
            array = JobArray.written(jobs, self.settings)
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


def main() -> None:
    """Run the job. Asked to end while its time is not up, or shortly before it is, it saves and queues again."""
    try:
        job, devices = JobArray(Path(sys.argv[1])).job(int(sys.argv[2]))
    except UserError as error:
        sys.exit(f"error: {error}")
    keep_exit_code(job, None)
    try:
        with raising_stopped():
            code = run_job(job, devices)
    except Stopped as stop:
        code = stop.exit_code
        if _queues_again():
            return
    keep_exit_code(job, code)
    sys.exit(code)


def _queues_again() -> bool:
    """Have Slurm start this task again, unless it was cancelled or Slurm does so by itself."""
    number = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    asked = ["squeue", "--noheader", f"--jobs={number}", "--format=%T"]
    state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if state != "RUNNING":
        return False
    return subprocess.run(["scontrol", "requeue", number], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    main()
