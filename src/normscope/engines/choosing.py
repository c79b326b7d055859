"""The engine that a user has asked for and its settings: a frozen dataclass for each.

No library is imported until an engine is opened.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..errors import UserError, option
from ..settings.validation import validated


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The needs of each job of a sweep."""

    threads: int
    device: str
    """The device as torch names it, such as cpu or cuda:0."""
    cores: int
    """The number of cores that this process may use."""

    @property
    def may_be_anywhere(self) -> bool:
        """True where it computes on the first GPU that it sees, and so on any that is given to
        it.
        """
        return self.device in ("cuda", "cuda:0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Processes of this machine."""

    name: ClassVar[str] = "local"
    elsewhere: ClassVar[bool] = False
    """True where runs train on machines that are not known here."""
    gpus_per_run: float = 0.0
    """The share of a GPU that a run takes, at most 1; 0 for one run a GPU, unless a number of
    processes says more."""
    processes_per_run: int = 1
    """The number of processes that train one run together; on GPUs each of them has one of its
    own.
    """

    def __post_init__(self) -> None:
        _refuse_no_process(self)
        if self.gpus_per_run and self.processes_per_run > 1:
            raise ValueError(
                "gpus_per_run is a share of one GPU, and each of the processes_per_run = "
                f"{self.processes_per_run} processes of a run has a GPU of its own; leave one of "
                "them out"
            )
        if not 0 <= self.gpus_per_run <= 1:
            raise ValueError(
                "gpus_per_run must be a share of one GPU, above 0 and at most 1, got "
                f"{self.gpus_per_run:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """A Ray cluster that is there already; none is started."""

    name: ClassVar[str] = "ray"
    elsewhere: ClassVar[bool] = True
    address: str = "auto"
    """auto for the cluster of this machine, or of RAY_ADDRESS."""
    cpus_per_run: int = 0
    """0 for as many as a run has threads."""
    gpus_per_run: float = 0.0
    """A share of one, or whole ones."""
    retries: int = 3
    """The number of times that a run whose worker or machine has gone is continued elsewhere. One
    that fails by itself does not.
    """
    processes_per_run: int = 1
    """The number of processes that train one run together, on one machine."""
    storage: str = ""
    """The place of finished runs, as fsspec takes it, such as s3://bucket/grids, for machines
    without a shared folder. Empty: every machine sees the folder of the runs.
    """

    def __post_init__(self) -> None:
        _refuse_negative(self, "cpus_per_run", "gpus_per_run", "retries")
        _refuse_no_process(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """The options of `sbatch` for each run. Empty: what the cluster gives by itself."""

    name: ClassVar[str] = "slurm"
    elsewhere: ClassVar[bool] = True
    cluster: Literal["slurm", "local"] = "slurm"
    """local has submitit start the same jobs on this machine, all at once, to try them."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    time: str = "4:00:00"
    """The time limit of one job, as Slurm writes it: minutes, minutes:seconds,
    hours:minutes:seconds, or days before a hyphen. A run takes as many jobs as it needs.
    """
    mem: str = ""
    """The memory as Slurm writes it, such as 16G."""
    gres: str = ""
    """The generic resources, such as gpu:a100:1."""
    cpus_per_run: int = 0
    """0 for as many as a run has threads."""
    gpus_per_run: int = 0
    processes_per_run: int = 1
    """The number of processes that train one run together, on one machine."""
    parallelism: int = 0
    """Runs that train at a time; 0 for no limit of ours."""
    array_size: int = 1000
    """Jobs of one array at most: what Slurm takes, by its usual configuration."""
    seconds_to_save: int = 120
    """The seconds before a job's time is up at which it is asked to save; it then takes its place
    in the queue again.
    """
    setup: tuple[str, ...] = ()
    """Lines of the shell before a run, such as "module load cuda"."""

    def __post_init__(self) -> None:
        _refuse_negative(self, "cpus_per_run", "gpus_per_run", "parallelism")
        _refuse_no_process(self)
        for key in ("array_size", "seconds_to_save"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        for key in ("partition", "account", "qos", "constraint", "time", "mem", "gres"):
            if any(sign.isspace() for sign in getattr(self, key)):
                raise ValueError(f"{key} is one word without blanks, got {getattr(self, key)!r}")
        if any("\n" in line for line in self.setup):
            raise ValueError("setup is a list of lines, and one of them holds a line break")
        minutes_of(self.time)

    @property
    def minutes(self) -> int:
        """The time limit of one job in minutes."""
        return minutes_of(self.time)


_DAY_MINUTES = 24 * 60
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})")


def minutes_of(time: str) -> int:
    """Returns the minutes of a time as Slurm writes it, a part of one as a whole one. Raises
    ValueError.

    >>> [minutes_of(text) for text in ("90", "2:30", "4:00:00", "1-12")]
    [90, 3, 240, 2160]
    """
    found = _TIME.fullmatch(time)
    if found is None:
        raise ValueError(
            f"time is minutes, hours:minutes:seconds or days-hours, as Slurm has it, got {time!r}"
        )
    parts = [int(part) for part in found["clock"].split(":")]
    if found["days"] is not None:
        # After days come hours, then minutes, then seconds.
        hours, minutes, seconds = [*parts, 0, 0][:3]
        total = int(found["days"]) * _DAY_MINUTES + hours * 60 + minutes
    elif len(parts) == 3:
        hours, minutes, seconds = parts
        total = hours * 60 + minutes
    else:
        total, seconds = [*parts, 0][:2]
    return max(1, total + (seconds > 0))


def _refuse_negative(settings: Any, *keys: str) -> None:
    for key in keys:
        if getattr(settings, key) < 0:
            raise ValueError(f"{key} must be 0 or more, got {getattr(settings, key):g}")


def _refuse_no_process(settings: Any) -> None:
    if settings.processes_per_run < 1:
        raise ValueError(f"processes_per_run must be at least 1, got {settings.processes_per_run}")


EngineSettings = LocalSettings | RaySettings | SlurmSettings
LOCAL = LocalSettings()
"""This machine, with nothing said of it."""
ENGINES: Mapping[str, type[EngineSettings]] = {
    one.name: one for one in (LocalSettings, RaySettings, SlurmSettings)
}
"""The engines by the name that a user gives."""


def engine_settings(name: str | None, given: Mapping[str, Any] | None = None) -> EngineSettings:
    """Returns what is said of the engine of that name; None stands for local.

    Raises UserError where there is no such engine, or where it has no such setting.
    """
    name = name or LocalSettings.name
    if name not in ENGINES:
        raise UserError(
            f"{option('engine')} is one of {', '.join(ENGINES)}, got {name!r}: use local for this "
            "machine alone"
        )
    return validated(ENGINES[name], dict(given or {}), source=f"engine {name}")
