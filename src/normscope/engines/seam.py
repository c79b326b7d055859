"""The seam between what is to run and where it runs: start, poll, stop; and a user's settings of the machines."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command whose whole state is a run folder, so that it may be ended anywhere and started again elsewhere."""

    name: str
    words: Sequence[str]
    """What follows the Python interpreter."""
    directory: Path
    """Where its relative paths begin: that of this process."""
    folder: Path
    """Of the run, which the command locks while it works on it."""
    log: Path
    """What it says is appended here. The folder is there."""
    threads: int
    """Of the CPU."""


class Engine(ABC, Generic[R]):
    """Starts jobs. R: what it knows a started job by."""

    at_once: int | None = None
    """How many jobs it is given at a time; None where it has a queue of its own, which takes all."""
    outlived: bool = False
    """Whether its jobs go on when this process has ended."""

    @abstractmethod
    def start(self, job: Job) -> R:
        """Raises OSError where the job cannot be started."""

    @abstractmethod
    def poll(self, running: R) -> int | None:
        """The exit code once the job has ended, minus the signal's number where one killed it; None until then."""

    @abstractmethod
    def stop(self, running: Sequence[R]) -> None:
        """Ask these jobs to save and end, wait until they have, and let go of what the engine holds.

        An engine whose jobs go on without this process leaves them going.
        """


AnyEngine = Engine[Any]
MakeEngine = Callable[[int], AnyEngine]
"""An engine, from how many jobs at a time this machine has room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """A cluster that is already there; none is started."""

    name: ClassVar[str] = "ray"
    address: str = "auto"
    """auto for the cluster of this machine or of RAY_ADDRESS."""
    cpus: int = 0
    """Of a run; 0 for as many as it has threads."""
    gpus: int = 0
    """Of a run. Those of several are processes on one machine, as of `normscope train --devices`."""
    retries: int = 3
    """How often a run whose worker or machine has gone goes on elsewhere. One that fails itself does not."""

    def __post_init__(self) -> None:
        for key in ("cpus", "gpus", "retries"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} must be 0 or more, got {getattr(self, key)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """What `sbatch` is asked for, for each run. Empty: what the cluster gives by itself."""

    name: ClassVar[str] = "slurm"
    partition: str = ""
    account: str = ""
    time: str = ""
    """Of one job, as Slurm writes it (minutes, or days-hours:minutes:seconds); a run takes as many as it needs."""
    memory: str = ""
    """As Slurm writes it, such as 8G."""
    gpus: int = 0
    """Of a run. Those of several are processes on one machine, as of `normscope train --devices`."""
    at_once: int = 0
    """Jobs that run at a time; 0 for no limit of ours."""
    seconds_to_save: int = 120
    """Before a job's time is up it is asked to save; it then takes its place in the queue again."""
    options: tuple[str, ...] = ()
    """Further options of sbatch, such as "--constraint=h100"."""

    def __post_init__(self) -> None:
        for key in ("gpus", "at_once"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} must be 0 or more, got {getattr(self, key)}")
        if self.seconds_to_save < 1:
            raise ValueError(f"seconds_to_save must be at least 1, got {self.seconds_to_save}")
        for key in ("partition", "account", "time", "memory", "options"):
            for text in [*self.options] if key == "options" else [getattr(self, key)]:
                if any(sign.isspace() for sign in text):
                    raise ValueError(f"{key}: options of sbatch are words without blanks, got {text!r}")
        if odd := [text for text in self.options if not text.startswith("--")]:
            raise ValueError(f"options must begin with --, got {odd}")
