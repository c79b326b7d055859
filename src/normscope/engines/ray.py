"""Jobs as tasks of a Ray cluster, one a job, which Ray starts again elsewhere where a worker or a
machine has gone.
"""

import signal
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import UserError, in_one_line, installation
from ..files import disk_errors, make_folders
from .carried import CarriedJob
from .choosing import RaySettings
from .seam import Engine, Future, Job, note

_LOOK_SECONDS = 0.5
"""Between two questions to the cluster about what has ended, whatever the number of jobs."""
_ENDED_BY_REQUEST = 128 + signal.SIGTERM
_TOKEN = ".written-by-a-task-"


@dataclass(slots=True, eq=False)
class _Task(Future):
    """A job, and what Ray knows it by."""

    engine: "OnRay"
    job: Job
    reference: Any
    ended: int | None = None

    def code(self) -> int | None:
        """As of any future."""
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
                raise UserError(
                    f"no Ray cluster at address {settings.address!r}: start one with `ray start "
                    "--head` on this machine and `ray start --address=HOST:6379` on others, or "
                    "give its address with --engine-set address=HOST:6379"
                ) from error
        self._open: dict[Any, _Task] = {}
        """Every job that was not seen to end."""
        self._looked = -_LOOK_SECONDS
        self._shared: set[Path] = set()

    def start(self, job: Job) -> Future:
        """Raises UserError where a machine of the cluster does not share the folder, or has another
        NormScope.
        """
        folder = job.log.absolute().parent
        if folder not in self._shared:
            self._refuse_unshared(folder)
            self._shared.add(folder)
        task = self._ray.remote(_run).options(
            name=job.name,
            num_cpus=self.settings.cpus_per_run or job.threads,
            num_gpus=self.settings.gpus_per_run,
            max_retries=self.settings.retries,
            retry_exceptions=False,
        )
        reference = task.remote(job)
        self._open[reference] = _Task(self, job, reference)
        return self._open[reference]

    def look(self) -> None:
        """Asks the cluster what has ended, unless it did a moment ago."""
        if not self._open or time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        ended, _ = self._ray.wait(
            list(self._open), num_returns=len(self._open), timeout=0, fetch_local=False
        )
        for reference in ended:
            self._open[reference].ended = self._code(reference)
            del self._open[reference]
        self._looked = time.monotonic()

    def stop(self, futures: Sequence[Future]) -> None:
        """As of any engine."""
        asked = [one for one in futures if isinstance(one, _Task) and one.ended is None]
        for task in asked:
            # The job is asked to save, and is not tried again.
            self._ray.cancel(task.reference, force=False)
        for task in asked:
            task.ended = self._code(task.reference)
            self._open.pop(task.reference, None)

    def close(self) -> None:
        """Leaves the cluster, where it was joined here."""
        if self._joined:
            self._ray.shutdown()

    def _code(self, reference: Any) -> int:
        job = self._open[reference].job
        try:
            return int(self._ray.get(reference))
        except self._ray.exceptions.TaskCancelledError:
            return _ENDED_BY_REQUEST
        except self._ray.exceptions.RayError as error:
            # Its worker or machine has gone more often than it may be tried again, or it could not
            # begin.
            note(job, f"Ray: {in_one_line(error)}")
            return 1

    def _refuse_unshared(self, folder: Path) -> None:
        """Has a task on every machine write a token into the folder, and looks for them here."""
        with disk_errors(f"writing into {folder}"):
            make_folders(folder)
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        asked = [self._on_node(node).remote(folder) for node in nodes]
        answers = [answer for answer in map(self._answer, asked) if answer is not None]
        written = {file.name for file in folder.glob(f"{_TOKEN}*")}
        blind = sorted({answer["host"] for answer in answers if answer["token"] not in written})
        for name in written:
            (folder / name).unlink(missing_ok=True)
        if blind:
            raise UserError(
                f"{folder} is not the same folder on {', '.join(blind)}: give --out a folder that "
                "every machine of the cluster has under the same path"
            )
        others = {f"{a['host']} {a['normscope']}" for a in answers if a["normscope"] != __version__}
        if others:
            raise UserError(
                f"machines of the cluster have another NormScope than {__version__} here: "
                f"{', '.join(sorted(others))}; install the same everywhere"
            )

    def _answer(self, asked: Any) -> Mapping[str, str] | None:
        """What a machine says; None of one that has gone meanwhile, since no job will run
        there.
        """
        try:
            found: Mapping[str, str] = self._ray.get(asked)
        except self._ray.exceptions.RayError:
            return None
        return found

    def _on_node(self, node: Mapping[str, Any]) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        return self._ray.remote(_write_token).options(num_cpus=0, scheduling_strategy=there)


def _run(job: Job) -> int:
    """What a task does."""
    return CarriedJob(job).run()


def _write_token(folder: Path) -> Mapping[str, str]:
    """Writes a file into the folder on this machine; says its name, and who says so."""
    token = f"{_TOKEN}{uuid.uuid4().hex}"
    if folder.is_dir():
        (folder / token).touch()
    return {"host": socket.gethostname(), "token": token, "normscope": __version__}
