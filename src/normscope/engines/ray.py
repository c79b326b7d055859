"""Jobs as tasks of a Ray cluster: one a job, which Ray starts again elsewhere where a worker or a machine has gone."""

import signal
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import UserError, in_one_line, installation
from ..files import disk_errors, write_atomically
from .seam import Engine, Job, RaySettings, note, run_job, seen_from_here

_LOOK_SECONDS = 0.5
"""Between two questions to the cluster about what has ended, whatever the number of jobs."""
_ENDED_BY_REQUEST = 128 + signal.SIGTERM


class OnRay(Engine[Any]):
    """All jobs at once: the cluster has a queue. Jobs end with this process, having saved."""

    def __init__(self, settings: RaySettings) -> None:
        """Attach to the cluster. Raises UserError where Ray is not installed or no cluster is found."""
        try:
            import ray
        except ImportError:
            raise UserError(f"the engine ray needs Ray: {installation('ray')}") from None
        self.settings, self._ray = settings, ray
        self._attaches = not ray.is_initialized()
        if self._attaches:
            try:
                ray.init(address=settings.address, log_to_driver=False, configure_logging=False)
            except ConnectionError as error:
                raise UserError(
                    f"no Ray cluster at address {settings.address!r}; start one (`ray start --head` on this machine, "
                    "and `ray start --address=HOST:6379` on others), or give its address in [engine]"
                ) from error
        self._task = ray.remote(run_job)
        self._open: dict[Any, Job] = {}
        """Every job that was not seen to end."""
        self._ended: set[Any] = set()
        """Those of them that have, as the cluster says."""
        self._looked = -_LOOK_SECONDS
        self._seen: set[Path] = set()

    def start(self, job: Job) -> Any:
        """Raises UserError where a machine of the cluster does not see the folder, or has another NormScope."""
        folders = {job.directory, job.log.parent}
        if folders - self._seen:
            self._check(sorted(folders))
            self._seen |= folders
        reference = self._task.options(
            name=job.name,
            num_cpus=self.settings.cpus or job.threads,
            num_gpus=self.settings.gpus,
            max_retries=self.settings.retries,
            retry_exceptions=False,
        ).remote(job, self.settings.gpus)
        self._open[reference] = job
        return reference

    def poll(self, running: Any) -> int | None:
        """As of any engine."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            ended, _ = self._ray.wait(list(self._open), num_returns=len(self._open), timeout=0, fetch_local=False)
            self._ended |= set(ended)
            self._looked = time.monotonic()
        return self._code(running) if running in self._ended else None

    def stop(self, running: Sequence[Any]) -> None:
        """As of any engine; then leave the cluster, where it was joined here."""
        for reference in running:
            # The job is asked to save, and its retries are off.
            self._ray.cancel(reference, force=False)
        for reference in running:
            self._code(reference)
        if self._attaches:
            self._ray.shutdown()

    def _code(self, reference: Any) -> int:
        job = self._open.pop(reference)
        self._ended.discard(reference)
        try:
            return int(self._ray.get(reference))
        except self._ray.exceptions.TaskCancelledError:
            return _ENDED_BY_REQUEST
        except self._ray.exceptions.RayError as error:
            # Its machine or its worker has gone more often than it may be retried, or could not begin.
            note(job, f"Ray: {in_one_line(error)}")
            return -signal.SIGKILL

    def _check(self, folders: Sequence[Path]) -> None:
        """Have every machine look at files that are written now."""
        word, files = uuid.uuid4().hex, [folder.resolve() / f".seen-by-all-{uuid.uuid4().hex}" for folder in folders]
        try:
            for file in files:
                with disk_errors(f"writing into {file.parent}"):
                    write_atomically(file, word)
            asked = [self._on_node(node).remote(files) for node in self._ray.nodes() if node["Alive"]]
            answers = list(filter(None, map(self._answer, asked)))
        finally:
            for file in files:
                file.unlink(missing_ok=True)
        for place, file in enumerate(files):
            if blind := sorted({answer["host"] for answer in answers if answer["contents"][place] != word}):
                raise UserError(
                    f"{file.parent} is not the same folder on {', '.join(blind)}; work in a folder that every machine "
                    "of the cluster has under the same path"
                )
        if odd := sorted({f"{a['host']} {a['normscope']}" for a in answers if a["normscope"] != __version__}):
            raise UserError(f"machines of the cluster have another NormScope than {__version__} here: {', '.join(odd)}")

    def _answer(self, asked: Any) -> dict[str, Any] | None:
        """What a machine sees; None of one that has gone meanwhile, since no job will run there."""
        try:
            found: dict[str, Any] = self._ray.get(asked)
        except self._ray.exceptions.RayError:
            return None
        return found

    def _on_node(self, node: Mapping[str, Any]) -> Any:
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        return self._ray.remote(seen_from_here).options(num_cpus=0, scheduling_strategy=strategy)
