"""A comparison in a folder: run, whatever was run there before, and its report, at the end and at
any time.

One command holds a folder at a time. `prepare` writes down what a comparison would train and starts
nothing.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..engines.alone import alone
from ..engines.choosing import LOCAL, EngineSettings
from ..engines.opening import script_of
from ..engines.seam import Engine
from ..errors import UserError, option
from ..files import disk_errors, write_together
from ..limits.kinds import CONFIGURATION
from ..report.comparison.contents import ComparisonPage
from ..report.words import counted, duration
from ..runs.config import load_run_config
from ..runs.machine import plan
from ..signals import Interrupted
from ..tasks.protocol import AnyCorpus, StartingWeights
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train import RunFolder, StopRule, durations
from ..train.together.joining import refuse_launched
from . import manifest as manifests
from .cost import WORTH_PLANNING_SECONDS, told_cost, trial_seconds
from .facts import not_comparable
from .grid import Cell, write_configs
from .page import compare, refuse_other_report
from .pool import (
    PoolOptions,
    engine_for,
    needs_of,
    printed_command,
    refuse_unshared,
    train_all,
)
from .state import CellState, looked_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """The outcome of a comparison."""

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
    """Run what is not finished, then write the page of all that the folder holds; after a signal,
    too.

    evaluate: the split to translate with each best checkpoint. title: None for the one that the
    folder has. defaults: of axes that nobody gave, which is said. Raises UserError before anything
    runs where the corpus, a setting or a run folder does not fit, or where another process is at
    work on this comparison.
    """
    config = cells[0].config
    corpus = corpus_of(config, evaluate)
    with closing(_engine_of(cells, options)) as engine, alone(folder, "comparison"):
        # This raises where the corpus has no use for the task.
        objective = task_of(config).objective(config, corpus, torch.device("cpu"))
        updates = durations(objective, config.train)(config.train.duration)
        manifest = manifests.former_manifest(folder, lambda config: corpus) or manifests.about(
            config, corpus
        )
        former = manifests.named_cells(folder, manifest.cells)
        manifests.refuse_unlike(cells, former, manifest, corpus.fingerprint, folder)
        refuse_other_report(folder)
        costs = _costs_of(cells, corpus, manifest.costs)
        weights = _weights_of(cells, manifest.weights)
        states = looked_at(cells, updates, options.stop_when)
        seconds = _seconds_left(states, corpus, updates=updates, at_once=engine.at_once)
        announcement = _announced(states, seconds, updates=updates, at_once=engine.at_once)
        costs_told = _costs_told(states, seconds, options.engine, engine, updates=updates)
        manifest = replace(
            manifest.grown(title, options.command, cells),
            costs=costs,
            weights=weights,
            own_placement=manifest.own_placement or task_of(config).placement_as_built(corpus),
        )
        with disk_errors(f"writing into {folder}"):
            write_configs(cells)
        manifests.write_manifest(folder, manifest)
        if defaults:
            options.say(f"not given, so the defaults of compare: {'; '.join(defaults)}")
        for note in _notes(config, corpus, weights):
            options.say(f"note: {note}")
        options.say(announcement)
        if costs_told:
            options.say(costs_told)
        states, stopped = train_all(cells, updates, engine, options, evaluate)
        failed = {state.cell.name: state.message for state in states if state.status == "failed"}
        manifest = replace(manifest, failed={**manifest.failed, **failed})
        manifests.write_manifest(folder, manifest)
        with disk_errors(f"writing the report into {folder}"):
            page, file = compare(manifests.named_cells(folder, manifest.cells), manifest, folder)
    return ComparisonResult(
        page=page, file=file, problems=_problems(states), stopped=stopped, cells=cells
    )


def _engine_of(cells: Sequence[Cell], options: PoolOptions) -> Engine:
    """Returns the engine that trains the runs. Raises UserError where it does not fit them."""
    refuse_launched()
    refuse_unshared(cells, options.engine)
    return engine_for(cells[0].config, options.engine, options.processes)


def _notes(
    config: RunConfig, corpus: AnyCorpus, weights: Mapping[str, StartingWeights]
) -> list[str]:
    """Returns what a user has to know of the runs before they begin."""
    notes = [*task_of(config).notes(corpus)]
    confounded = not_comparable(weights)
    if confounded:
        notes.append(f"not comparable: {confounded}")
    return notes


def _problems(states: Sequence[CellState]) -> list[str]:
    """Returns a line for each run that failed, or whose evaluation did."""
    return [
        f"{state.cell.name}: {state.message} (log: {state.cell.log_file})"
        for state in states
        if state.message and state.status in ("failed", "finished")
    ]


def corpus_of(base: RunConfig, evaluate: str | None) -> AnyCorpus:
    """Returns the corpus of all runs. Raises UserError for a split that cannot be evaluated."""
    task = task_of(base)
    corpus: AnyCorpus = task.open(base)
    if evaluate is not None and not task.translates:
        raise UserError(
            f"{option('evaluate', evaluate)}: task {base.task} has no translations to score; leave "
            "it out"
        )
    if evaluate is not None and (evaluate == "train" or evaluate not in corpus.splits):
        allowed = ", ".join(name for name in corpus.splits if name != "train")
        raise UserError(
            f"{option('evaluate', evaluate)}: no such split to translate; the corpus has {allowed}"
        )
    return corpus


def _seconds_left(
    states: Sequence[CellState], corpus: AnyCorpus, *, updates: int, at_once: int | None
) -> float | None:
    """About how long the runs take that are not over, by the time of one trial batch; None where
    that is not known.

    at_once: how many run at a time; None where that is not known. Raises UserError where a run has
    been trained for longer than it is to be.
    """
    for state in states:
        if state.update > updates:
            raise UserError(
                f"{state.cell.folder.path} has been trained for {state.update} updates, and "
                f"train.duration asks for {updates}; give a longer duration, or choose another "
                f"folder with {option('out')}"
            )
    left = [updates - state.update for state in states if not state.over]
    config = states[0].cell.config
    if not any(left) or at_once is None or config.train.device != "cpu":
        return None
    seconds = trial_seconds(config, corpus) * config.train.accumulation
    return seconds * max(sum(left) / min(at_once, len(left)), *left)


def _announced(
    states: Sequence[CellState], seconds: float | None, *, updates: int, at_once: int | None
) -> str:
    """Returns a line that says how many runs there are, how long each is, and about how long all of
    them take.

    seconds, at_once: None where they are not known.
    """
    finished = sum(state.over for state in states)
    said = f"{counted(len(states), 'run')} of {counted(updates, 'update')}"
    if finished:
        said += f", {finished} of them finished"
    if all(state.over or state.update == updates for state in states):
        return said
    if at_once is None:
        return f"{said}; as many at a time as there is room for"
    said += f"; {at_once} at a time"
    if seconds is None:
        return said
    return f"{said}; about {duration(seconds)} of training, by the time of one trial batch"


def _costs_told(
    states: Sequence[CellState],
    seconds: float | None,
    settings: EngineSettings,
    engine: Engine,
    *,
    updates: int,
) -> str:
    """Returns the cost of the runs that are not over, in a sentence; empty for a sweep that is soon
    over, where nobody asks. Raises UserError where a run cannot fit.
    """
    left = [(state.cell, updates - state.update) for state in states if not state.over]
    if not left or (seconds is not None and seconds < WORTH_PLANNING_SECONDS):
        return ""
    return told_cost(left, settings, engine)


def _costs_of(
    cells: Sequence[Cell], corpus: AnyCorpus, known: Mapping[str, Mapping[str, float]]
) -> Mapping[str, Mapping[str, float]]:
    """`Manifest.costs` of every placement among the cells, and those that are known; those alone
    for a task that does not ask for it. Raises UserError where the model cannot have one of the
    placements."""
    if not task_of(cells[0].config).weighs_placements:
        return known
    found = dict(known)
    for cell in cells:
        if cell.arm.placement not in found:
            planned = plan(cell.config)
            found[cell.arm.placement] = {
                "parameters": planned.parameters,
                "memory_bytes": planned.sum,
                "flops": planned.flops_per_update,
                "seconds": trial_seconds(cell.config, corpus),
            }
    return found


def _weights_of(
    cells: Sequence[Cell], known: Mapping[str, StartingWeights]
) -> Mapping[str, StartingWeights]:
    """`Manifest.weights` of every placement among the cells, and those that are known."""
    found = dict(known)
    for cell in cells:
        if cell.arm.placement not in found:
            start = task_of(cell.config).starting_weights(cell.config)
            found |= {} if start is None else {cell.arm.placement: start}
    return found


def prepare(
    cells: list[Cell],
    folder: Path,
    stop_when: StopRule | None = None,
    engine: EngineSettings = LOCAL,
) -> list[str]:
    """Write the configurations of the runs; the script that the engine would be given for those
    that are not over, where it is given one, or else the command that trains each of them, a line
    each.

    Raises UserError where another process is at work in the folder, or a run's folder holds
    something else.
    """
    refuse_unshared(cells, engine)
    with alone(folder, "comparison"), disk_errors(f"writing into {folder}"):
        write_configs(cells)
        left = [state.cell for state in looked_at(cells, None, stop_when) if not state.over]
        write_together(
            folder / "cells",
            {cell.config_file.name: cell.configuration for cell in left},
            CONFIGURATION,
        )
        needs, scripts = needs_of(cells[0].config), folder.absolute() / "slurm"
        script = script_of(engine, needs, len(left), scripts)
        if script is not None:
            return [script]
        return [printed_command(cell, stop_when, engine.processes_per_run) for cell in left]


def report(
    folders: Sequence[Path], out: Path, *, title: str | None = None
) -> tuple[ComparisonPage, Path]:
    """Write the page of all runs in the folders into `out`, as far as they have come; returns it
    and its file.

    A comparison's folder says itself what is needed of its corpus; otherwise the corpus of the run
    is opened. Raises UserError where a folder holds no runs, or where runs cannot stand in one
    comparison.
    """
    found = [opened(folder) for folder in folders]
    cells, manifest = found[0]
    for folder, (others, of_others) in zip(folders[1:], found[1:], strict=True):
        manifests.refuse_unlike(others, cells, manifest, of_others.corpus.fingerprint, folders[0])
        known = {cell.name: cell.folder.path for cell in cells}
        for name in (other.name for other in others if other.name in known):
            raise UserError(
                f"{folder}: {name} is also in {known[name]}; a report holds each run once"
            )
        cells = [*cells, *others]
        manifest = replace(
            manifest,
            commands=tuple(dict.fromkeys([*manifest.commands, *of_others.commands])),
            failed={**manifest.failed, **of_others.failed},
        )
    with disk_errors(f"writing the report into {out}"):
        return compare(cells, replace(manifest, title=title or manifest.title), out)


def opened(folder: Path) -> tuple[list[Cell], manifests.Manifest]:
    """Returns the runs of a folder, which is that of a comparison or a run, and what it says of
    them. Raises UserError.
    """
    run = RunFolder(folder)
    if run.is_run:
        config = load_run_config(run)
        corpus = task_of(config).recorded(config, run.vocabularies)
        return [manifests.cell_of(run, config)], manifests.about(config, corpus)
    manifest = manifests.former_manifest(folder, lambda config: task_of(config).open(config))
    cells = manifests.named_cells(folder, manifest.cells) if manifest is not None else []
    if manifest is None or not cells:
        raise UserError(
            f"{folder} holds no comparison and is no run; give the --out of a comparison, or a run "
            "folder"
        )
    return cells, manifest
