"""Which engine a user has asked for and what is said of it: a frozen dataclass for each.

No library is imported until an engine is opened.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import UserError, option
from ..settings.validation import validated
from .seam import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What each job of a sweep takes of its machine."""

    threads: int
    device: str
    """As torch names it, such as cpu or cuda:0."""
    cores: int
    """That this process may use."""

    @property
    def may_be_anywhere(self) -> bool:
        """Whether it computes on the first GPU that it sees, and so on any that is given to it."""
        return self.device in ("cuda", "cuda:0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Processes of this machine."""

    name: ClassVar[str] = "local"
    gpus_per_run: float = 0.0
    """The share of a GPU that a run takes, at most 1; 0 for one run a GPU, unless a number of
    processes says more."""

    def __post_init__(self) -> None:
        if not 0 <= self.gpus_per_run <= 1:
            raise ValueError(
                "gpus_per_run must be a share of one GPU, above 0 and at most 1, got "
                f"{self.gpus_per_run:g}"
            )

    def opened(self, needs: Needs, processes: int) -> Engine:
        """Returns the engine. processes: jobs at a time; 0 for one a core, or a GPU."""
        from .local import OnThisMachine, visible_devices

        if needs.device == "cpu":
            return OnThisMachine(processes or max(1, needs.cores // needs.threads))
        devices = visible_devices() if needs.may_be_anywhere else []
        most = max(1, len(devices)) * self._runs_a_gpu
        if processes and self.gpus_per_run:
            most = min(processes, most)
        return OnThisMachine(most if self.gpus_per_run else processes or most, devices)

    @property
    def _runs_a_gpu(self) -> int:
        # 1 / 0.1 may lie a rounding below 10.
        return math.floor(1 / self.gpus_per_run + 1e-9) if self.gpus_per_run else 1


EngineSettings = LocalSettings
LOCAL = LocalSettings()
"""This machine, with nothing said of it."""
ENGINES: Mapping[str, type[EngineSettings]] = {one.name: one for one in (LocalSettings,)}
"""By the name that a user gives."""


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
