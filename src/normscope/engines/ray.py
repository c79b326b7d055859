"""Jobs as tasks of a Ray cluster, one a job, which Ray starts again elsewhere where a worker or a
machine has gone.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import UserError, in_one_line, installation
from ..files import disk_errors, make_folders
from ..processes.surroundings import hold
from .away import AwayEnd, run_away
from .carried import CarriedJob
from .choosing import RaySettings
from .seam import Engine, Future, Job, LargestMachine, note
from .sharing import (
    SharedFolder,
    SharedPlace,
    SharedStorage,
    answered,
    memory_here,
    refuse_unshared,
)
from .storage import CellStorage, StoredCell, job_key, place_of

_LOOK_SECONDS = 0.5
"""The seconds between two questions to the cluster about what has ended, whatever the number of
jobs.
"""
_Answer = TypeVar("_Answer")
_ENDED_BY_REQUEST = 128 + signal.SIGTERM


@dataclass(slots=True, eq=False)
class _Task(Future):
    """A job, and what Ray knows it by."""

    engine: "OnRay"
    job: Job
    reference: Any
    ended: int | None = None

    def code(self) -> int | None:
        """Returns the exit code, as every future does."""
        if self.ended is None:
            self.engine.look()
        return self.ended


class OnRay(Engine):
    """All jobs at once: the cluster has a queue. They end with this process, having saved."""

    queues = True

    def __init__(self, settings: RaySettings) -> None:
        """Joins the cluster. Raises UserError where Ray is not installed or no cluster is found."""
        try:
            import ray
        except ImportError:
            raise UserError(f"the engine ray needs Ray: {installation('ray')}") from None
        self.settings, self._ray = settings, ray
        self._joined = not ray.is_initialized()
        if self._joined:
            try:
                ray.init(address=settings.address, log_to_driver=False, configure_logging=False)
            except ConnectionError as error:
                raise UserError(_not_joined(settings.address, error)) from error
        self._open: dict[Any, _Task] = {}
        """The jobs that were not seen to end."""
        self._looked = -_LOOK_SECONDS
        self._shared: set[SharedPlace] = set()
        self._tasks: dict[int, Any] = {}
        """The cluster's description of a task by its threads; it is given once for all tasks that
        have as many.
        """
        self._storage = CellStorage(settings.storage) if settings.storage else None
        self._kept: set[str] = set()
        """Places of cells that the storage had before the first job."""

    def start(self, job: Job) -> Future:
        """A job that the storage says is done is not run again. Raises UserError where a machine of
        the cluster does not share the folder, or has another NormScope, and where none has the
        CPUs and GPUs of a job.
        """
        if job.threads not in self._tasks:
            self._tasks[job.threads] = self._task_of(job.threads)
        if self._storage is None:
            self._refuse_unshared(SharedFolder(job.log.absolute().parent))
        else:
            ended = self._ended_before(job, self._storage)
            if ended is not None:
                return _Task(self, job, None, ended)
        reference = (
            self._tasks[job.threads].options(name=job.name).remote(job, self.settings.storage)
        )
        self._open[reference] = _Task(self, job, reference)
        return self._open[reference]

    def _task_of(self, threads: int) -> Any:
        """Returns the remote function for a job of so many threads. Raises UserError where no
        machine could run it.
        """
        cpus, gpus = self.settings.cpus_per_run, self.settings.gpus_per_run
        cpus = cpus or threads * self.settings.processes_per_run
        has_it = [
            node["Resources"].get("CPU", 0) >= cpus and node["Resources"].get("GPU", 0) >= gpus
            for node in self._machines()
        ]
        if not any(has_it):
            there = ", ".join(
                f"{node['NodeManagerHostname']} {node['Resources'].get('CPU', 0):g} and "
                f"{node['Resources'].get('GPU', 0):g}"
                for node in self._machines()
            )
            raise UserError(
                f"a run takes {cpus} CPUs and {gpus:g} GPUs, and no machine of the cluster has so "
                f"many ({there}): start one that has, or give other cpus_per_run or gpus_per_run "
                "with --engine-set"
            )
        asked = self._ray.remote(
            num_cpus=cpus,
            num_gpus=gpus,
            max_retries=self.settings.retries,
            retry_exceptions=False,
        )
        return asked(_run)

    def _machines(self) -> list[Mapping[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def largest_machine(self) -> LargestMachine | None:
        """Returns the largest machine, as every engine does; the memory of GPUs is not known."""
        if self.settings.gpus_per_run:
            return None
        found = self._everywhere(memory_here)
        words = "the largest machine of the cluster"
        return LargestMachine(memory_bytes=max(found), words=words) if found else None

    def look(self) -> None:
        """Asks the cluster what has ended, unless it did a moment ago."""
        if not self._open or time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        ended, _ = self._ray.wait(
            list(self._open), num_returns=len(self._open), timeout=0, fetch_local=False
        )
        for reference in ended:
            task = self._open.pop(reference)
            task.ended = self._code(task)
        self._looked = time.monotonic()

    def stop(self, futures: Sequence[Future]) -> None:
        """Stops jobs, as every engine does."""
        asked = [one for one in futures if isinstance(one, _Task) and one.ended is None]
        for task in asked:
            # The job is asked to save, and is not tried again.
            self._ray.cancel(task.reference, force=False)
        for task in asked:
            task.ended = self._code(task)
            self._open.pop(task.reference, None)

    def close(self) -> None:
        """Leaves the cluster, where it was joined here."""
        if self._joined:
            self._ray.shutdown()

    def _code(self, task: _Task) -> int:
        job = task.job
        try:
            end = self._ray.get(task.reference)
        except self._ray.exceptions.TaskCancelledError:
            return _ENDED_BY_REQUEST
        except self._ray.exceptions.RayError as error:
            # Its worker or machine has gone more often than it may be tried again, or it could not
            # begin.
            note(job, f"Ray: {in_one_line(error)}")
            return 1
        if self._storage is None:
            return int(end)
        with job.log.open("a", encoding="utf-8") as log:
            log.write(end.said)
        if end.code:
            return int(end.code)
        return self._brought_back(job, self._storage) or 0

    def _ended_before(self, job: Job, storage: CellStorage) -> int | None:
        """Brings back, as `_brought_back` does, what an earlier command has left in the storage."""
        place = SharedStorage(storage.url)
        if place not in self._shared:
            self._refuse_unshared(place)
            self._kept = storage.places()
        return self._brought_back(job, storage) if place_of(job) in self._kept else None

    def _brought_back(self, job: Job, storage: CellStorage) -> int | None:
        """Brings the files of a job's cell here where the storage says that the job is done; 0
        then, 1 where they are damaged, and None where it is not done.
        """
        try:
            found = storage.stored(place_of(job))
            if found is None or job_key(job) not in found.done:
                return None
            self._fetch(job, storage, found)
        except UserError as error:
            note(job, f"error: {error}")
            return 1
        return 0

    def _fetch(self, job: Job, storage: CellStorage, found: StoredCell) -> None:
        with disk_errors(f"writing into {job.folder}"):
            make_folders(job.folder)
        with hold(job.folder):
            storage.fetch(found, job.folder)

    def _refuse_unshared(self, place: SharedPlace) -> None:
        """Checks, the first time, that every machine sees the same place and has the same
        NormScope. Raises UserError where one does not.
        """
        if place in self._shared:
            return
        place.prepare()
        refuse_unshared(place, self._everywhere(answered, place))
        self._shared.add(place)

    def _everywhere(self, asked: Callable[..., _Answer], *given: Any) -> list[_Answer]:
        """Returns the answer of every machine, but for one that has gone meanwhile, since no job
        will run there.
        """
        tasks = [self._on_node(node, asked).remote(*given) for node in self._machines()]
        answers: list[_Answer] = []
        for task in tasks:
            with contextlib.suppress(self._ray.exceptions.RayError):
                answers.append(self._ray.get(task))
        return answers

    def _on_node(self, node: Mapping[str, Any], asked: Callable[..., Any]) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        return self._ray.remote(asked).options(num_cpus=0, scheduling_strategy=there)


def _not_joined(address: str, error: BaseException) -> str:
    """Returns why there is no cluster for this process, and what to do."""
    why: BaseException | None = error
    while why is not None:
        # A cluster asks for one where the machine that began it has one; whoever joins is not told
        # by Ray to look for it.
        if "AuthToken" in str(why):
            return (
                f"the Ray cluster at address {address!r} asks for a token: set RAY_AUTH_MODE=token "
                "here and wherever `ray start` is given, and have the file ~/.ray/auth_token of "
                "the machine of `ray start --head` on all of them"
            )
        why = why.__cause__ or why.__context__
    return (
        f"no Ray cluster at address {address!r}: start one with `ray start --head` on this machine "
        "and `ray start --address=HOST:6379` on others, or give its address with --engine-set "
        "address=HOST:6379"
    )


def _run(job: Job, storage: str) -> int | AwayEnd:
    """Runs a task. storage: empty where it sees the job's folder."""
    return run_away(job, storage) if storage else CarriedJob(job).run()
