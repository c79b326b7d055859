"""An engine of the settings that a user has given; its library is imported here, late."""

import math
from pathlib import Path

from ..errors import UserError
from .choosing import EngineSettings, LocalSettings, Needs, RaySettings, SlurmSettings
from .seam import Engine


def opened(settings: EngineSettings, needs: Needs, processes: int) -> Engine:
    """Returns the engine.

    processes: jobs that it has at a time; 0 for as many as there is room for. Raises UserError
    where its library or its cluster is not there.
    """
    engine = _opened(settings, needs, processes)
    engine.processes_per_run = settings.processes_per_run
    return engine


def _opened(settings: EngineSettings, needs: Needs, processes: int) -> Engine:
    if isinstance(settings, LocalSettings):
        return _on_this_machine(settings, needs, processes)
    engine: Engine
    if isinstance(settings, RaySettings):
        from .ray import OnRay

        engine = OnRay(settings)
    else:
        from .slurm import OnSlurm

        engine = OnSlurm(settings)
    engine.at_once = processes or None
    return engine


def room_asked(settings: EngineSettings, needs: Needs) -> tuple[float, int]:
    """Returns the share of a GPU that a run of this machine is given, 0 where nothing is said, and
    how many GPUs runs are spread over.
    """
    if not isinstance(settings, LocalSettings) or needs.device == "cpu":
        return 0.0, 1
    from .local import visible_devices

    devices = visible_devices() if needs.may_be_anywhere else []
    return settings.gpus_per_run, max(1, len(devices))


def script_of(settings: EngineSettings, needs: Needs, jobs: int, folder: Path) -> str | None:
    """Returns what a scheduler is given for so many jobs of a sweep in a folder; None where the
    engine has no such script. Raises UserError where its library is not installed.
    """
    if not isinstance(settings, SlurmSettings):
        return None
    from .slurm import script

    return script(settings, jobs, needs.threads, folder)


def _on_this_machine(settings: LocalSettings, needs: Needs, processes: int) -> Engine:
    from . import local

    together = settings.processes_per_run
    if needs.device == "cpu":
        return local.OnThisMachine(processes or max(1, needs.cores // (needs.threads * together)))
    devices = local.visible_devices() if needs.may_be_anywhere else []
    if together > 1:
        if len(devices) < together:
            raise UserError(
                f"processes_per_run = {together}: each process of a run has a GPU of its own, and "
                f'with train.device = "{needs.device}" there are {len(devices)} to choose from; '
                'leave train.device at "auto", or give fewer processes'
            )
        room = len(devices) // together
        return local.OnThisMachine(min(processes or room, room), devices, together)
    room = max(1, len(devices)) * _runs_a_gpu(settings.gpus_per_run)
    at_once = processes or room
    if settings.gpus_per_run:
        at_once = min(at_once, room)
    return local.OnThisMachine(at_once, devices)


def _runs_a_gpu(share: float) -> int:
    # 1 / 0.1 may lie a rounding below 10.
    return math.floor(1 / share + 1e-9) if share else 1
