"""Run a comparison in a folder, whatever was run there before, and write the report of all that is there.

One command holds a folder at a time. `prepare` writes down what a comparison would train and starts nothing.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import UserError, option
from ..files import disk_errors
from ..report.comparison.contents import ComparisonPage
from ..signals import Interrupted
from ..tasks.protocol import AnyCorpus
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train import StopRule
from .asked import AskedComparison
from .costs import announced, costs_of, updates_of
from .grid import Cell, alone, cells_of, write_configs
from .manifest import TRIALS, about, former_manifest, named_cells, refuse_unlike, write_manifest
from .page import compare, refuse_other_report
from .pool import Commands, PoolOptions, at_once, train_all, train_command
from .state import CellState
from .tune import TuningResult, TuningTask, arms_of, tune


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """What a comparison came to."""

    page: ComparisonPage
    file: Path
    problems: Sequence[str]
    """A line for each run that failed, or whose evaluation did."""
    stopped: Interrupted | None
    """The signal that ended it before its runs were over."""
    cells: Sequence[Cell]
    """The runs that were asked for; where a tuning came to no end, its trials."""


def run_comparison(asked: AskedComparison, options: PoolOptions) -> ComparisonResult:
    """Run what is not finished, then write the page of all that the folder holds; after a signal, too.

    Where rates are tuned, every placement, warm-up and optimiser of the grid is, and each is then compared at its best
    rate with all seeds; where a trial failed, or a signal came, nothing is compared yet, and what comes back is the
    report of the trials. Raises UserError before anything runs where the corpus, a setting or a run folder does not
    fit, or where another process is at work on this comparison.
    """
    base, grid, folder = asked.base, asked.grid, asked.folder
    corpus = corpus_of(base, asked.evaluate)
    if asked.tuning is None:
        cells = grid.cells(base, folder)
        with alone(folder, "comparison"):
            return _compare_cells(cells, asked, corpus, options, asked.notes)
    arms = arms_of(grid)
    task = TuningTask(base=base, arms=arms, tuning=asked.tuning, corpus=corpus, threads=grid.threads)
    with alone(folder, "comparison"):
        tuned = tune(task, folder / TRIALS, options, notes=asked.notes)
        if not tuned.whole:
            return _of_trials(tuned, folder / TRIALS)
        seeds = range(base.seed, base.seed + grid.seeds)
        cells = cells_of([tuned.best(arm) for arm in arms], base, folder, seeds=seeds, threads=grid.threads)
        return _compare_cells(cells, asked, corpus, options)


def run_tuning(
    asked: TuningTask, folder: Path, options: PoolOptions, *, title: str | None
) -> tuple[TuningResult, ComparisonResult]:
    """Tune the arms in a folder of their own, and write the report of their trials. title: of this report."""
    tuned = tune(asked, folder, options, title=title)
    return tuned, _of_trials(tuned, folder)


def _of_trials(tuned: TuningResult, folder: Path) -> ComparisonResult:
    """The report of trials as that of a comparison of rates."""
    with disk_errors(f"writing the report into {folder}"):
        page, file = compare(named_cells(folder, tuned.manifest.cells), tuned.manifest, folder)
    trials = [cell for cells in tuned.trials.values() for cell in cells]
    return ComparisonResult(page=page, file=file, problems=tuned.problems, stopped=tuned.stopped, cells=trials)


def _compare_cells(
    cells: list[Cell], asked: AskedComparison, corpus: AnyCorpus, options: PoolOptions, notes: Sequence[str] = ()
) -> ComparisonResult:
    """As `run_comparison`, of runs that are given; the caller holds the folder."""
    folder = asked.folder
    updates = updates_of(cells[0].config, corpus)
    manifest = former_manifest(folder, lambda config: corpus) or about(cells[0].config, corpus)
    refuse_unlike(cells, named_cells(folder, manifest.cells), manifest, corpus.fingerprint, folder)
    refuse_other_report(folder)
    costs = costs_of(cells, corpus, manifest.costs)
    together = at_once(options.processes, cells[0].config)
    announcement = announced(cells, corpus, updates=updates, at_once=together, stop_when=options.stop_when)
    manifest = replace(manifest.grown(asked.title, options.command, cells), costs=costs)
    with disk_errors(f"writing into {folder}"):
        write_configs(cells)
    write_manifest(folder, manifest)
    told = task_of(cells[0].config).notes(corpus)
    for line in (*notes, *(f"note: {one}" for one in told), announcement):
        options.say(line)
    states, stopped = train_all(cells, updates, options, _translations(asked.evaluate))
    failed = {state.cell.name: state.message for state in states if state.status == "failed"}
    manifest = replace(manifest, failed={**manifest.failed, **failed})
    write_manifest(folder, manifest)
    with disk_errors(f"writing the report into {folder}"):
        page, file = compare(named_cells(folder, manifest.cells), manifest, folder)
    problems = [state for state in states if state.message and state.status in ("failed", "finished")]
    lines = [f"{state.cell.name}: {state.message} (log: {state.cell.log_file})" for state in problems]
    return ComparisonResult(page=page, file=file, problems=lines, stopped=stopped, cells=cells)


def _translations(split: str | None) -> Commands:
    """The command that translates and scores the split with a cell's best checkpoint, unless it was run."""

    def commands(cell: Cell) -> list[list[str]]:
        if split is None or cell.is_evaluated(split):
            return []
        file = str(cell.evaluation_file(split))
        trust = ["--trust"] * bool(cell.config.imports)
        return [["-m", "normscope", "evaluate", str(cell.folder.path), "--split", split, "--save", file, *trust]]

    return commands


def corpus_of(base: RunConfig, evaluate: str | None) -> AnyCorpus:
    """The corpus of all runs. Raises UserError for a split that cannot be evaluated."""
    task = task_of(base)
    corpus: AnyCorpus = task.open(base)
    if evaluate is not None and not task.translates:
        raise UserError(f"{option('evaluate', evaluate)}: task {base.task} has no translations to score; leave it out")
    if evaluate is not None and (evaluate == "train" or evaluate not in corpus.splits):
        allowed = ", ".join(name for name in corpus.splits if name != "train")
        raise UserError(f"{option('evaluate', evaluate)}: no such split to translate; the corpus has {allowed}")
    return corpus


def prepare(asked: AskedComparison, stop_when: StopRule | None = None) -> list[str]:
    """Write the configurations of the runs; the command that trains each one that is not over, a line each.

    Raises UserError where another process is at work in the folder, or a run's folder holds something else.
    """
    cells = asked.grid.cells(asked.base, asked.folder)
    with alone(asked.folder, "comparison"), disk_errors(f"writing into {asked.folder}"):
        write_configs(cells)
        states = [CellState(cell) for cell in cells]
        for state in states:
            state.read_new_events()
            state.reopen(stop_when)
        commands = [train_command(state.cell, stop_when) for state in states if not state.over]
        return [shlex.join(["normscope", *words[2:]]) for words in commands]
