"""A comparison in which every arm has its own best rate: tuned first, by the same number of trials each."""

from pathlib import Path
from typing import Any

from ...engines.choosing import local
from ...engines.seam import MakeEngine
from ...files import disk_errors
from ...tasks.run_config import RunConfig
from ...train import StopRule
from ..compare import Compared, Say, Watch, compare_cells, corpus_of, refuse_processes
from ..grid import Grid, cells_of, registered_name
from ..locks import alone
from ..manifest import TRIALS, named_cells
from ..reading.page import compare
from .settings import OpenArm, Tuning
from .tune import Asked, Tuned, tune


def run_tuned_comparison(
    base: RunConfig,
    grid: Grid,
    folder: Path,
    tuning: Tuning,
    *,
    processes: int,
    engine: MakeEngine = local,
    evaluate: str | None,
    title: str | None,
    command: str,
    watch: Watch,
    stop_when: StopRule | None = None,
    say: Say = lambda line: None,
    notes: tuple[str, ...] = (),
) -> Compared:
    """Tune every placement, warm-up and optimiser of the grid, then compare each at its best rate with all seeds.

    The grid's rates are not used. Where a trial failed, or a signal came, nothing is compared yet, and what comes back
    is the report of the trials. Raises UserError as `run_comparison` does.
    """
    corpus = corpus_of(base, evaluate)
    refuse_processes(processes)
    arms = [
        OpenArm(registered_name(placement), (warmup_updates,), optimizer)
        for placement, warmup_updates in grid.placements_and_warmups
        for optimizer in grid.optimizers
    ]
    asked = Asked(base=base, arms=arms, tuning=tuning, corpus=corpus, threads=grid.threads)
    shared: dict[str, Any] = {"processes": processes, "engine": engine, "command": command, "watch": watch}
    shared |= {"stop_when": stop_when, "say": say}
    with alone(folder, "comparison"):
        for line in notes:
            say(line)
        tuned = tune(asked, folder / TRIALS, title=None, **shared)
        if not tuned.whole:
            return of_trials(tuned, folder / TRIALS)
        best = [tuned.best(arm) for arm in arms]
        seeds = range(base.seed, base.seed + grid.seeds)
        cells = cells_of(best, base, folder, seeds=seeds, threads=grid.threads)
        return compare_cells(cells, folder, corpus, evaluate=evaluate, title=title, **shared)


def run_tuning(asked: Asked, folder: Path, *, processes: int, **options: Any) -> tuple[Tuned, Compared]:
    """Tune the arms in a folder of their own, and write the report of their trials. options: as of `tune`."""
    refuse_processes(processes)
    tuned = tune(asked, folder, processes=processes, **options)
    return tuned, of_trials(tuned, folder)


def of_trials(tuned: Tuned, folder: Path) -> Compared:
    """The report of trials as that of a comparison of rates."""
    with disk_errors(f"writing the report into {folder}"):
        page, file = compare(named_cells(folder, tuned.manifest.cells), tuned.manifest, folder)
    trials = [cell for cells in tuned.trials.values() for cell in cells]
    return Compared(page=page, file=file, problems=tuned.problems, stopped=tuned.stopped, cells=trials)
