"""Run a grid in a folder, whatever was run there before, and write the report of all that is there.

One command holds a folder at a time. `prepare` writes down what a comparison would train and starts nothing.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NotRequired, TypedDict, Unpack

from ..errors import UserError, option
from ..files import disk_errors, make_folders
from ..processes.surroundings import Held, hold
from ..report.comparison.contents import ComparisonPage
from ..signals import Interrupted
from ..tasks.protocol import AnyCorpus
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train import StopRule
from .grid import Cell, Grid, write_configs
from .manifest import about, costs_of, former_manifest, named_cells, refuse_unlike, write_manifest
from .page import compare, refuse_other_report
from .pool import Commands, announced, at_once, run_cells, train_command, updates_of
from .state import CellState


@contextmanager
def alone(folder: Path, doing: str) -> Iterator[None]:
    """Hold a folder, which is made if need be, for this command. Raises UserError naming the process that has it.

    doing: what is done in it, such as "comparison".
    """
    with ExitStack() as held:
        try:
            with disk_errors(f"opening {folder}"):
                make_folders(folder)
                held.enter_context(hold(folder))
        except Held as error:
            raise UserError(
                f"another process{error.holder} is at work on the {doing} in {folder}; wait for it, stop it, or choose "
                f"another folder with {option('out')}"
            ) from error
        yield


WatchCells = Callable[[list[CellState[Cell]]], None]


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


class GridOptions(TypedDict):
    """How the runs of a grid are trained, whichever they are."""

    processes: int
    """Runs at a time, 0 for cores / threads of a run."""
    command: str
    watch: WatchCells
    stop_when: NotRequired[StopRule | None]
    """Ends runs early."""
    say: NotRequired[Callable[[str], None]]


def run_comparison(
    base: RunConfig,
    grid: Grid,
    folder: Path,
    *,
    evaluate: str | None,
    title: str | None,
    notes: Sequence[str] = (),
    **options: Unpack[GridOptions],
) -> ComparisonResult:
    """Run what is not finished, then write the page of all that the folder holds; after a signal, too.

    evaluate: split to translate with each best checkpoint. title: None for the one that the folder has. notes: said
    with how much there is to do. Raises UserError before anything runs where the corpus, a setting or a run folder does
    not fit, or where another process is at work on this comparison.
    """
    corpus = corpus_of(base, evaluate)
    refuse_processes(options["processes"])
    cells = grid.cells(base, folder)
    with alone(folder, "comparison"):
        return compare_cells(cells, folder, corpus, evaluate=evaluate, title=title, notes=notes, **options)


def compare_cells(
    cells: list[Cell],
    folder: Path,
    corpus: AnyCorpus,
    *,
    processes: int,
    evaluate: str | None,
    title: str | None,
    command: str,
    watch: WatchCells,
    stop_when: StopRule | None = None,
    say: Callable[[str], None] = lambda line: None,
    notes: Sequence[str] = (),
) -> ComparisonResult:
    """As `run_comparison`, of runs that are given; the caller holds the folder."""
    updates = updates_of(cells[0].config, corpus)
    manifest = former_manifest(folder, lambda config: corpus) or about(cells[0].config, corpus)
    refuse_unlike(cells, named_cells(folder, manifest.cells), manifest, corpus.fingerprint, folder)
    refuse_other_report(folder)
    together = at_once(processes, cells[0].config)
    costs = costs_of(cells, corpus, manifest.costs)
    announcement = announced(cells, corpus, updates=updates, at_once=together, stop_when=stop_when)
    manifest = replace(manifest.grown(title, command, cells), costs=costs)
    with disk_errors(f"writing into {folder}"):
        write_configs(cells)
    write_manifest(folder, manifest)
    told = task_of(cells[0].config).notes(corpus)
    for line in (*notes, *(f"note: {one}" for one in told), announcement):
        say(line)
    states, stopped = train_all(cells, together, updates, _translations(evaluate), watch, stop_when)
    failed = {state.cell.name: state.message for state in states if state.status == "failed"}
    manifest = replace(manifest, failed={**manifest.failed, **failed})
    write_manifest(folder, manifest)
    with disk_errors(f"writing the report into {folder}"):
        page, file = compare(named_cells(folder, manifest.cells), manifest, folder)
    problems = [state for state in states if state.message and state.status in ("failed", "finished")]
    lines = [f"{state.cell.name}: {state.message} (log: {state.cell.log_file})" for state in problems]
    return ComparisonResult(page=page, file=file, problems=lines, stopped=stopped, cells=cells)


def train_all(
    cells: list[Cell],
    at_once: int,
    updates: int,
    translations: Commands | None,
    watch: WatchCells,
    stop_when: StopRule | None,
) -> tuple[list[CellState[Cell]], Interrupted | None]:
    """What became of the cells, and the signal that ended it all early."""
    seen: list[CellState[Cell]] = []

    def look(states: list[CellState[Cell]]) -> None:
        seen[:] = states
        watch(states)

    try:
        return run_cells(
            cells,
            at_once=at_once,
            evaluate=translations,
            updates_of=lambda cell: updates,
            stop_when=stop_when,
            watch=look,
        ), None
    except Interrupted as stop:
        return seen, stop


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


def refuse_processes(processes: int) -> None:
    """Raise UserError for a number of runs at a time that there cannot be."""
    if processes < 0:
        raise UserError(f"{option('processes')} must be 0 or more, got {processes}")


def prepare(base: RunConfig, grid: Grid, folder: Path, stop_when: StopRule | None = None) -> list[str]:
    """Write the configurations of the runs; the command that trains each one that is not over, a line each.

    Raises UserError where another process is at work in the folder, or a run's folder holds something else.
    """
    cells = grid.cells(base, folder)
    with alone(folder, "comparison"), disk_errors(f"writing into {folder}"):
        write_configs(cells)
        states = [CellState(cell) for cell in cells]
        for state in states:
            state.read_new_events()
            state.reopen(stop_when)
        commands = [train_command(state.cell, stop_when) for state in states if not state.over]
        return [shlex.join(["normscope", *words[2:]]) for words in commands]
