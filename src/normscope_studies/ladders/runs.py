"""Trainings of a grid's cells, and where each went."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from normscope.compare.grid import Cell, write_configs
from normscope.compare.pool import run_cells
from normscope.compare.state import CellState
from normscope.errors import UserError
from normscope.train.device import available_cores, choose_device

from ..engine.pieces import Pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where a training went."""

    cell: Cell
    final_nats: float
    """Validation loss per target token at the end; of a run that did not stay finite, that of its first batch."""
    first_nats: float
    """Of the first batch, before the first update."""
    finite: bool


def train(cells: Sequence[Cell], stage: str, pieces: Pieces) -> list[Run]:
    """Train what the folder lacks, and say where each of the cells went.

    stage: what the trainings are called while they run. Raises UserError for a training that failed, and Interrupted.
    """
    total = sum(int(cell.config.train.duration) for cell in cells)

    def watch(states: Iterable[CellState[Cell]]) -> None:
        # A run that ended early takes no more updates.
        done = sum(int(s.cell.config.train.duration) if s.over else s.update for s in states)
        pieces.watch(f"updates of {stage}", done, total)

    write_configs(cells)
    processes = available_cores() if choose_device(cells[0].config.train.device).type == "cpu" else 1
    states = run_cells(list(cells), engine=pieces.engine(processes), watch=watch)
    failed = [f"{s.cell.name}: {s.message} (log: {s.cell.log_file})" for s in states if s.status == "failed"]
    if failed:
        raise UserError("\n".join(failed))
    return [_run(cell) for cell in cells]


def _run(cell: Cell) -> Run:
    events = cell.folder.events()
    first = next((event["nll_nats"] for event in events if event["event"] == "update"), math.inf)
    validations = [event["nll_nats"] for event in events if event["event"] == "validation"]
    finite = events[-1]["event"] == "finished" and math.isfinite(validations[-1])
    return Run(cell=cell, final_nats=validations[-1] if finite else first, first_nats=first, finite=finite)


def mean_finals(runs: Sequence[Run]) -> float:
    """Mean of the last losses in nats."""
    return math.fsum(run.final_nats for run in runs) / len(runs)
