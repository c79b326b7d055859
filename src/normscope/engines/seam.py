"""The seam between what is to run and where it runs: start, poll, stop, and nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

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
