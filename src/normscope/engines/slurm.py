"""Jobs as arrays in Slurm's queue, by submitit. They go on without this process: whoever sees the
folder sees how they fare.

All of it is in `slurm/` beside the runs: what submitit writes (scripts, and what its tasks say),
`NUMBER.jobs.json`, the numbers that Slurm gave to the jobs of an array, and `NAME.code.json`, the
exit code of a job that has ended. No pickle is read here: of what lies in a folder of results,
these two kinds of files alone.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError, in_one_line, installation
from ..files import disk_errors, make_folders, write_over
from ..limits.names import refuse_leading_out
from ..limits.ours import SealedJson
from ..processes.surroundings import interpreter
from .carried import CarriedJob
from .choosing import SlurmSettings
from .seam import Engine, Future, Job, LargestMachine

_LOOK_SECONDS = 5.0
"""The seconds between two looks at all jobs, whatever their number."""
_GONE_SECONDS = 60.0
"""For a file that another machine has written to be seen here."""
_GONE = 75
"""The exit code of a job that left the queue without one (EX_TEMPFAIL): the same command submits it
again."""
_AGAIN = "remove it and give the same command again, which submits what is not finished"
_NUMBERS = SealedJson(
    format_name="normscope-queued-jobs", version=1, keys=frozenset({"numbers"}), again=_AGAIN
)
_NUMBERS_ENDING = ".jobs.json"
_CODE = SealedJson(
    format_name="normscope-exit-code", version=1, keys=frozenset({"code"}), again=_AGAIN
)


class QueuedTask:
    """A task of an array; submitit pickles it, and calls `checkpoint` when the task is preempted or
    its time is nearly up.
    """

    def __init__(self, job: Job) -> None:
        self.carried = CarriedJob(job)

    def __call__(self) -> int:
        """Does the job; returns its exit code, which is written down too."""
        job = self.carried.job
        _keep_code(job, None)
        code = self.carried.run()
        _keep_code(job, code)
        return code

    def checkpoint(self) -> Any:
        """Has the run saved; returns what to do when the task begins again: the same."""
        from submitit.helpers import DelayedSubmission

        self.carried.save()
        return DelayedSubmission(QueuedTask(self.carried.job))


@dataclass(slots=True, eq=False)
class _QueuedFuture(Future):
    """A job, and its number in the queue once it was submitted."""

    engine: "OnSlurm"
    job: Job
    number: str = ""
    ended: int | None = None
    gone_since: float | None = None
    """The time at which it was first not in the queue, by this process's clock; None where it
    is.
    """

    def code(self) -> int | None:
        """Returns the exit code, as every future does. Raises UserError where Slurm does not take
        the jobs.
        """
        self.engine.look()
        return self.ended


class OnSlurm(Engine):
    """All jobs at once: those that are started before one is asked for become arrays."""

    queues = True
    outlived = True

    def __init__(self, settings: SlurmSettings) -> None:
        """Connects to Slurm through submitit. Raises UserError where submitit is not installed, or
        this machine has no Slurm.
        """
        submitit = _submitit()
        self.settings, self._submitit = settings, submitit
        self._on_slurm = settings.cluster == "slurm"
        if self._on_slurm:
            _refuse_without_slurm()
        self._waiting: list[_QueuedFuture] = []
        self._open: list[_QueuedFuture] = []
        self._jobs: dict[str, Any] = {}
        """The jobs of submitit that this process has submitted, by their numbers."""
        self._looked = -_LOOK_SECONDS
        self._former: dict[Path, dict[str, str]] = {}
        """The numbers of jobs that an earlier command still has in the queue, by folder and
        name.
        """

    def start(self, job: Job) -> Future:
        """A job that an earlier command has in the queue still is not submitted twice."""
        future = _QueuedFuture(self, job)
        folder = _folder(job)
        if folder not in self._former:
            self._former[folder] = self._queued_before(folder)
        former = self._former[folder].pop(job.name, "")
        if former:
            future.number = former
        else:
            self._waiting.append(future)
        self._open.append(future)
        return future

    def stop(self, futures: Sequence[Future]) -> None:
        """Jobs in the queue go on; what was not submitted yet is not."""
        self._waiting.clear()

    def largest_machine(self) -> LargestMachine | None:
        """Returns the largest machine, as every engine does: what a job asks for, or its partition
        has; the memory of GPUs is not known.
        """
        if self.settings.gpus_per_run or self.settings.gres or not self._on_slurm:
            return None
        asked = memory_bytes(self.settings.mem)
        if asked:
            return LargestMachine(memory_bytes=asked, words="a job, by mem")
        command = ["sinfo", "--noheader", "--format=%m"]
        if self.settings.partition:
            command.append(f"--partition={self.settings.partition}")
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            largest = max(int(word.rstrip("+")) for word in done.stdout.split())
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        # A node of which nobody has said it has one megabyte.
        if largest <= 1:
            return None
        return LargestMachine(memory_bytes=largest * _MEGABYTE, words="the largest node")

    def look(self) -> None:
        """Submits what waits, and sees what has ended, unless it did a moment ago."""
        if self._waiting:
            self._submit()
        elif time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        queue = self._queue()
        for future in self._open:
            future.ended = self._ended(future, queue)
        self._open = [future for future in self._open if future.ended is None]
        self._looked = time.monotonic()

    def _queued_before(self, folder: Path) -> dict[str, str]:
        """Returns the numbers of jobs that are in the queue, by name, as an earlier command wrote
        them down.
        """
        written = [
            (name, number)
            for file in sorted(folder.glob(f"*{_NUMBERS_ENDING}"))
            for name, number in _NUMBERS.read(file)["numbers"].items()
        ]
        queue = self._queue() if written else set()
        return {name: number for name, number in written if number in queue}

    def _ended(self, future: _QueuedFuture, queue: set[str]) -> int | None:
        if future.number in queue:
            # Whatever it has written down: one that was asked to end may be in the queue again.
            future.gone_since = None
            return None
        code = _code_of(future.job)
        if code is not None:
            return code
        # One that has just ended may not have said so yet to this machine.
        future.gone_since = future.gone_since or time.monotonic()
        return _GONE if time.monotonic() - future.gone_since > _GONE_SECONDS else None

    def _submit(self) -> None:
        """Everything that waits, in arrays of at most so many as Slurm takes."""
        size = self.settings.array_size
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), size):
            some = waiting[first : first + size]
            folder = _folder(some[0].job)
            with disk_errors(f"writing into {folder}"):
                make_folders(folder)
                refuse_leading_out(folder)
                for future in some:
                    if _code_file(future.job).exists():
                        _keep_code(future.job, None)
            tasks = [QueuedTask(future.job) for future in some]
            for future, job in zip(some, self._submitted(folder, tasks), strict=True):
                future.number = job.job_id
                self._jobs[job.job_id] = job
            numbers = {future.job.name: future.number for future in some}
            file = folder / f"{some[0].number}{_NUMBERS_ENDING}"
            with disk_errors(f"writing into {folder}"):
                write_over(file, _NUMBERS.text({"numbers": numbers}), _NUMBERS.kind)

    def _submitted(self, folder: Path, tasks: Sequence[QueuedTask]) -> list[Any]:
        """Submits tasks together and returns submitit's jobs. Raises UserError."""
        try:
            executor = self._executor(folder, tasks)
            with executor.batch():
                jobs = [executor.submit(task) for task in tasks]
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            raise UserError(f"Slurm did not take the jobs: {in_one_line(error)}") from error
        return jobs

    def _executor(self, folder: Path, tasks: Sequence[QueuedTask]) -> Any:
        threads = max(task.carried.job.threads for task in tasks)
        if not self._on_slurm:
            from submitit.local.local import LocalExecutor

            executor = LocalExecutor(folder, max_num_timeout=_ANY_NUMBER)
            executor.update_parameters(timeout_min=self.settings.minutes)
            return executor
        executor = self._submitit.SlurmExecutor(folder, max_num_timeout=_ANY_NUMBER, python=_PYTHON)
        executor.update_parameters(**parameters(self.settings, threads))
        return executor

    def _queue(self) -> set[str]:
        """Returns the numbers of jobs that are in the queue: waiting or running."""
        if not self._on_slurm:
            return {number for number, job in self._jobs.items() if not job.done()}
        asked = ["squeue", "--noheader", "--array", "--format=%i", "--me"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode:
            # A controller that does not answer for a while says nothing of the jobs.
            return {future.number for future in self._open}
        return set(done.stdout.split())


_MEGABYTE = 1 << 20
_UNITS = {"": _MEGABYTE, "K": 1 << 10, "M": _MEGABYTE, "G": 1 << 30, "T": 1 << 40}


def memory_bytes(mem: str) -> int:
    """Returns the bytes of a memory as Slurm writes it; 0 where it says none, or all.

    >>> [memory_bytes(text) for text in ("16G", "500", "")]
    [17179869184, 524288000, 0]
    """
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", mem.upper())
    return int(found[1]) * _UNITS[found[2]] if found else 0


_ANY_NUMBER = 1_000_000
"""The number of times that a job may take its place in the queue again: a run takes as many as it
needs.
"""
_PYTHON = " ".join(interpreter())


def parameters(settings: SlurmSettings, threads: int) -> dict[str, Any]:
    """Returns what submitit's executor for Slurm is told, by its own words; what is not said is
    left to the cluster.
    """
    told: dict[str, Any] = {
        "job_name": "normscope",
        "time": settings.minutes,
        "cpus_per_task": settings.cpus_per_run or threads * settings.processes_per_run,
        "array_parallelism": settings.parallelism or settings.array_size,
        "signal_delay_s": settings.seconds_to_save,
    }
    for name in ("partition", "account", "qos", "constraint", "mem", "gres"):
        said = getattr(settings, name)
        if said:
            told[name] = said
    if settings.gpus_per_run:
        told["gpus_per_node"] = settings.gpus_per_run
    if settings.setup:
        told["setup"] = list(settings.setup)
    return told


def script(settings: SlurmSettings, jobs: int, threads: int, folder: Path) -> str:
    """Returns the script that `sbatch` is given for an array of so many jobs, as submitit writes
    it. Raises UserError where submitit is not installed.
    """
    _submitit()
    from submitit.slurm.slurm import _make_sbatch_string

    text: str = _make_sbatch_string(
        command=f"{_PYTHON} -u -m submitit.core._submit {folder}",
        folder=folder,
        map_count=jobs,
        **parameters(settings, threads),
    )
    return text


def _submitit() -> Any:
    try:
        import submitit
    except ImportError:
        raise UserError(f"the engine slurm needs submitit: {installation('slurm')}") from None
    return submitit


def _refuse_without_slurm() -> None:
    needed = ("sbatch", "squeue", "srun")
    missing = [command for command in needed if shutil.which(command) is None]
    if missing:
        raise UserError(
            f"the engine slurm calls {', '.join(missing)}, and this machine has no such command: "
            "give this where jobs are submitted, or leave --engine out and give --dry-run, which "
            "prints a command for each run"
        )


def _folder(job: Job) -> Path:
    return job.log.absolute().parents[1] / "slurm"


def _code_file(job: Job) -> Path:
    return _folder(job) / f"{job.name}.code.json"


def _keep_code(job: Job, code: int | None) -> None:
    """Writes down how a job has ended; None where it begins."""
    write_over(_code_file(job), _CODE.text({"code": code}), _CODE.kind)


def _code_of(job: Job) -> int | None:
    """Returns the exit code of a job that has ended and said so; None before."""
    file = _code_file(job)
    code = _CODE.read(file)["code"] if file.is_file() else None
    return code if isinstance(code, int) else None
