"""Jobs as processes of this machine, each with the threads, and the GPU or the share of one, that
it is given.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .seam import Engine, Future, Job, process_of
from .worker import OURS, Fork, Worker

_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(slots=True, eq=False)
class _Running(Future):
    """A process that does a job, and where."""

    process: "subprocess.Popen[bytes] | Fork | Any"
    device: str | None
    """The GPUs that it alone sees, as `CUDA_VISIBLE_DEVICES` names them; None where it sees all."""
    ended: bool = False

    def code(self) -> int | None:
        """Returns the exit code, as every future does."""
        code = self.process.poll()
        self.ended = code is not None
        return code


class OnThisMachine(Engine):
    """An engine that runs some jobs at a time on this machine. Should this process be killed, they
    save and end too.
    """

    counted = True

    def __init__(self, at_once: int, devices: Sequence[str] = (), gpus_a_job: int = 1) -> None:
        """devices: GPUs to spread jobs over, by their names in CUDA_VISIBLE_DEVICES, so many for
        each; none where every job finds its device itself.
        """
        self.at_once: int = at_once
        self.devices = list(devices)
        self._gpus_a_job = gpus_a_job
        self._workers: dict[tuple[int, tuple[str, ...]], Worker] = {}
        """The workers by threads and modules of a job."""
        self._running: list[_Running] = []

    def start(self, job: Job) -> Future:
        """Starts a job, as every engine does: the first one with a number of threads and its
        modules starts the process that all of them are forked from.
        """
        device = self._freest()
        more = {} if device is None else {_VISIBLE: device}
        process = self._worker(job).start(job, more) if forks(job) else begun(job, more)
        self._running.append(_Running(process, device))
        return self._running[-1]

    def stop(self, futures: Sequence[Future]) -> None:
        """Stops jobs, as every engine does."""
        processes = [one.process for one in futures if isinstance(one, _Running)]
        for process in processes:
            if process.poll() is None:
                process.terminate()
                process.send_signal(signal.SIGCONT)  # one that was halted saves too
        for process in processes:
            process.wait()

    def close(self) -> None:
        """Closes the workers, as every engine does."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def _worker(self, job: Job) -> Worker:
        kind = (job.threads, tuple(job.modules))
        known = self._workers.get(kind)
        if known is not None and not known.lives:
            known.close()
            known = None
        if known is None:
            known = self._workers[kind] = Worker(*kind)
        return known

    def _freest(self) -> str | None:
        """Returns the GPUs with the fewest jobs, the first of several; None where there is none to
        choose.
        """
        if not self.devices:
            return None
        self._running = [one for one in self._running if not one.ended]
        taken: list[str] = []
        for one in self._running:
            taken += (one.device or "").split(",")
        return ",".join(sorted(self.devices, key=taken.count)[: self._gpus_a_job])


def forks(job: Job) -> bool:
    """Tells whether a worker takes the job: one of our own commands, where processes are forked."""
    if sys.platform != "linux" or job.words[0] != "-m":
        return False
    return job.words[1].partition(".")[0] == OURS


begun = process_of
"""The function that begins a job that is not forked."""


def visible_devices() -> list[str]:
    """Returns the GPUs that this process sees, by their names in CUDA_VISIBLE_DEVICES."""
    import torch

    said = os.environ.get(_VISIBLE)
    count = torch.cuda.device_count()
    names = [str(number) for number in range(count)] if said is None else said.split(",")
    return [name.strip() for name in names[:count]]
