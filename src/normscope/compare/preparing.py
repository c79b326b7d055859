"""What a comparison would train, written down and not started."""

import shlex
from pathlib import Path

from ..engines.seam import RaySettings, SlurmSettings
from ..engines.slurm import Array
from ..files import disk_errors
from ..tasks.run_config import RunConfig
from ..train import StopRule
from .grid import Grid, write_configs
from .locks import alone
from .pool import job_of, train_command
from .state import CellState


def prepare(
    base: RunConfig,
    grid: Grid,
    folder: Path,
    settings: RaySettings | SlurmSettings | None,
    stop_when: StopRule | None = None,
) -> list[str]:
    """Write the configurations of the runs, and for Slurm the array of those that are not over.

    Returns commands, a line each: of every run, or the one that submits the array. Raises UserError where another
    process is at work in the folder, or a run's folder holds something else.
    """
    cells = grid.cells(base, folder)
    with alone(folder, "comparison"), disk_errors(f"writing into {folder}"):
        write_configs(cells)
        states = [CellState(cell) for cell in cells]
        for state in states:
            state.read_new_events()
            state.reopen(stop_when)
        jobs = [job_of(state.cell, train_command(state.cell, stop_when)) for state in states if not state.over]
        if isinstance(settings, SlurmSettings) and jobs:
            return [shlex.join(["sbatch", str(Array.written(jobs, settings).script)])]
        return [shlex.join(["normscope", *job.words[2:]]) for job in jobs]
