"""Trainings of a study: what they take is told before they begin, and what they took is kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager

import torch

from normscope.compare.cost import is_worth_planning, told_cost
from normscope.compare.grid import Cell, write_configs
from normscope.compare.pool import engine_for, refuse_unshared, run_cells
from normscope.compare.state import CellState, looked_at
from normscope.engines.seam import Engine
from normscope.errors import UserError
from normscope.files import write_over
from normscope.report.words import counted
from normscope.train.together.joining import refuse_launched

from .kept_cells import COST, KeptFolder
from .pieces import Pieces, processor_seconds
from .planning import Corpora, PlanEnds, PlannedRuns, planned_cells

LaterCells = Mapping[str, Sequence[Cell]]
"""The trainings, by stage, that follow on others, at any of their rates, since which one the others
choose changes neither their number nor what an update costs.
"""
NOTHING_LATER: LaterCells = {}


def train_all(
    cells: Sequence[Cell],
    stage: str,
    pieces: Pieces,
    evaluate: Callable[[Cell], list[list[str]]] | None = None,
    *,
    later: LaterCells | None = None,
) -> None:
    """Trains the cells that are not over; unless `pieces` says another number, on CPUs one run a
    core, and one on a device.

    Finished ones are kept in `cells/` of the study's folder, a small file each, and what is kept
    there is not trained again, unless the study reads checkpoints, which no such file holds. stage:
    what the trainings are called. evaluate: as of `run_cells`. Raises PlanEnds where they are only
    to be planned and some are not finished.
    """
    kept = KeptFolder(pieces.folder / "cells")
    if pieces.plan is not None:
        usable = [] if pieces.reads_checkpoints else list(filter(kept.holds, cells))
        _planned(cells, stage, pieces.plan, later, usable)
        return
    if not pieces.reads_checkpoints:
        for line in kept.restore(cells, scored=evaluate is not None):
            pieces.say(line)
    total = sum(int(cell.config.train.duration) for cell in cells)

    def watch(states: Iterable[CellState]) -> None:
        # A run that ended early takes no more updates.
        done = sum(int(s.cell.config.train.duration) if s.over else s.update for s in states)
        pieces.watch(f"updates of {stage}", done, total)

    refuse_launched()
    refuse_unshared(cells, pieces.engine)
    engine = engine_for(cells[0].config, pieces.engine, pieces.processes)
    with ExitStack() as unless_refused:
        unless_refused.callback(engine.close)
        told = _cost_of(cells, pieces, engine)
        write_configs(cells)
        unless_refused.pop_all()
    if told:
        pieces.say(f"{stage}: {told}")
    # What an engine has started here is counted when it has been let go of.
    with kept.keeping(cells), _costed(cells, pieces, engine), closing(engine):
        states = run_cells(list(cells), engine=engine, evaluate=evaluate, watch=watch)
    failed = [
        f"{s.cell.name}: {s.message} (log: {s.cell.log_file})"
        for s in states
        if s.status == "failed"
    ]
    if failed:
        raise UserError("\n".join(failed))


def _cost_of(cells: Sequence[Cell], pieces: Pieces, engine: Engine) -> str:
    """Returns the cost of the trainings that are not over, in a sentence; empty where they are soon
    over. Raises UserError where one cannot fit.
    """
    left = []
    for state in looked_at(cells, None, None):
        updates = (state.total_updates or 0) - state.update
        if not state.over and updates > 0:
            left.append((state.cell, updates))
    if not left:
        return ""
    # What a study draws here is what it would have drawn without this.
    with torch.random.fork_rng(devices=[]):
        if not is_worth_planning(left, engine.at_once):
            return ""
        told = told_cost(left, pieces.engine, engine)
    return f"{counted(len(left), 'training')}; {told}"


def _planned(
    cells: Sequence[Cell],
    stage: str,
    plan: list[PlannedRuns],
    later: LaterCells | None,
    kept: Sequence[Cell],
) -> None:
    """Notes trainings in a plan; of finished ones alone, what they chose is known, and a plan goes
    on. Raises PlanEnds where it does not.

    kept: those that are finished though they have no run folder.
    """
    corpora = Corpora()
    now = planned_cells(stage, cells, corpora, is_kept=kept.__contains__)
    plan.append(now)
    # What a kept training found is read from its run folder, which a plan does not make.
    if now.over == now.runs and not kept:
        return
    if later is None:
        raise PlanEnds("trainings that hang on what these find, if there are any")
    plan += [planned_cells(name, others, corpora) for name, others in later.items()]
    raise PlanEnds("what is measured of models once they are trained, if anything")


@contextmanager
def _costed(cells: Sequence[Cell], pieces: Pieces, engine: Engine) -> Iterator[None]:
    """A context in which cells are trained: what it takes is shared out by updates, and kept beside
    each run's log.

    Not known is what a device or another machine took, what an earlier version trained, and what
    was trained when this process was killed.
    """
    before, since = looked_at(cells, None, None), processor_seconds()
    files = [cell.log_file.with_suffix(".json") for cell in cells]
    taken = [COST.read(file)["processor_seconds"] if file.is_file() else None for file in files]
    for at, (file, state) in enumerate(zip(files, before, strict=True)):
        if (
            not (state.over or state.update or file.is_file())
            and state.cell.config.train.device == "cpu"
            and engine.counted
        ):
            taken[at] = 0.0
        if not state.over:
            write_over(file, COST.text({"processor_seconds": None}), COST.kind)
    try:
        yield
    finally:
        spent, after = processor_seconds() - since, looked_at(cells, None, None)
        more = [max(0, now.update - then.update) for now, then in zip(after, before, strict=True)]
        for cell, file, seconds, updates in zip(cells, files, taken, more, strict=True):
            if updates and not engine.counted:
                seconds = None
            if seconds is not None and updates:
                seconds = round(seconds + spent * updates / sum(more), 3)
                write_over(file, COST.text({"processor_seconds": seconds}), COST.kind)
            pieces.processor_seconds[str(cell.folder.path)] = seconds
