"""A comparison in a folder: run, whatever was run there before, and its report, at the end and at any time.

One command holds a folder at a time. `prepare` writes down what a comparison would train and starts nothing.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import UserError, option
from ..files import disk_errors
from ..report.comparison.contents import ComparisonPage
from ..runs.config import load_run_config
from ..signals import Interrupted
from ..tasks.protocol import AnyCorpus
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train import RunFolder, StopRule
from .costs import announced, costs_of, updates_of
from .grid import Cell, alone, write_configs
from .manifest import (
    Manifest,
    about,
    cell_of,
    former_manifest,
    named_cells,
    refuse_unlike,
    write_manifest,
)
from .page import compare, refuse_other_report
from .pool import PoolOptions, at_once, train_all, train_command
from .state import CellState


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
    """The runs that were asked for."""


def run_comparison(
    cells: list[Cell],
    folder: Path,
    options: PoolOptions,
    *,
    evaluate: str | None = None,
    title: str | None = None,
    defaults: Sequence[str] = (),
) -> ComparisonResult:
    """Run what is not finished, then write the page of all that the folder holds; after a signal, too.

    evaluate: the split to translate with each best checkpoint. title: None for the one that the folder has. defaults:
    of axes that nobody gave, which is said. Raises UserError before anything runs where the corpus, a setting or a run
    folder does not fit, or where another process is at work on this comparison.
    """
    config = cells[0].config
    corpus = corpus_of(config, evaluate)
    with alone(folder):
        updates = updates_of(config, corpus)
        manifest = former_manifest(folder, lambda config: corpus) or about(config, corpus)
        refuse_unlike(cells, named_cells(folder, manifest.cells), manifest, corpus.fingerprint, folder)
        refuse_other_report(folder)
        costs = costs_of(cells, corpus, manifest.costs)
        together = at_once(options.processes, config)
        announcement = announced(cells, corpus, updates=updates, at_once=together, stop_when=options.stop_when)
        manifest = replace(manifest.grown(title, options.command, cells), costs=costs)
        with disk_errors(f"writing into {folder}"):
            write_configs(cells)
        write_manifest(folder, manifest)
        if defaults:
            options.say(f"not given, so the defaults of compare: {'; '.join(defaults)}")
        for line in (*(f"note: {one}" for one in task_of(config).notes(corpus)), announcement):
            options.say(line)
        states, stopped = train_all(cells, updates, options, evaluate)
        failed = {state.cell.name: state.message for state in states if state.status == "failed"}
        manifest = replace(manifest, failed={**manifest.failed, **failed})
        write_manifest(folder, manifest)
        with disk_errors(f"writing the report into {folder}"):
            page, file = compare(named_cells(folder, manifest.cells), manifest, folder)
    problems = [state for state in states if state.message and state.status in ("failed", "finished")]
    lines = [f"{state.cell.name}: {state.message} (log: {state.cell.log_file})" for state in problems]
    return ComparisonResult(page=page, file=file, problems=lines, stopped=stopped, cells=cells)


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


def prepare(cells: list[Cell], folder: Path, stop_when: StopRule | None = None) -> list[str]:
    """Write the configurations of the runs; the command that trains each one that is not over, a line each.

    Raises UserError where another process is at work in the folder, or a run's folder holds something else.
    """
    with alone(folder), disk_errors(f"writing into {folder}"):
        write_configs(cells)
        states = [CellState(cell) for cell in cells]
        for state in states:
            state.read_new_events()
            state.reopen(stop_when)
        commands = [train_command(state.cell, stop_when) for state in states if not state.over]
        return [shlex.join(["normscope", *words[2:]]) for words in commands]


def report(folders: Sequence[Path], out: Path, *, title: str | None = None) -> tuple[ComparisonPage, Path]:
    """Write the page of all runs in the folders into `out`, as far as they have come; returns it and its file.

    A comparison's folder says itself what is needed of its corpus; otherwise the corpus of the run is opened. Raises
    UserError where a folder holds no runs, or where runs cannot stand in one comparison.
    """
    found = [opened(folder) for folder in folders]
    cells, manifest = found[0]
    for folder, (others, of_others) in zip(folders[1:], found[1:], strict=True):
        refuse_unlike(others, cells, manifest, of_others.corpus.fingerprint, folders[0])
        for other in others:
            if twice := [cell for cell in cells if cell.name == other.name]:
                raise UserError(
                    f"{folder}: {other.name} is also in {twice[0].folder.path}; a report holds each run once"
                )
        cells = [*cells, *others]
        manifest = replace(
            manifest,
            commands=tuple(dict.fromkeys([*manifest.commands, *of_others.commands])),
            failed={**manifest.failed, **of_others.failed},
        )
    with disk_errors(f"writing the report into {out}"):
        return compare(cells, replace(manifest, title=title or manifest.title), out)


def opened(folder: Path) -> tuple[list[Cell], Manifest]:
    """The runs of a folder, which is that of a comparison or a run, and what it says of them. Raises UserError."""
    run = RunFolder(folder)
    if run.is_run:
        config = load_run_config(run)
        return [cell_of(run, config)], about(config, task_of(config).recorded(config, run.vocabularies))
    manifest = former_manifest(folder, lambda config: task_of(config).open(config))
    cells = named_cells(folder, manifest.cells) if manifest is not None else []
    if manifest is None or not cells:
        raise UserError(f"{folder} holds no comparison and is no run; give the --out of a comparison, or a run folder")
    return cells, manifest
