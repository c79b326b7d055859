"""What runs of a comparison take: how many updates, how long beforehand, and how much of the machine by placement."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import torch

from ..errors import UserError, option
from ..placement import AsBuilt, named
from ..report.words import counted, duration, significant
from ..runs.machine import plan
from ..tasks.protocol import AnyCorpus, FactLines
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train import StopRule, durations
from .grid import Cell
from .state import CellState

_LONG_SECONDS = 1.0


def updates_of(config: RunConfig, corpus: AnyCorpus) -> int:
    """Updates of a whole run. Raises UserError where the corpus has no use for the task."""
    objective = task_of(config).objective(config, corpus, torch.device("cpu"))
    return durations(objective, config.train)(config.train.duration)


def announced(
    cells: Sequence[Cell], corpus: AnyCorpus, *, updates: int, at_once: int, stop_when: StopRule | None = None
) -> str:
    """A line that says how many runs there are, how long each is, and about how long all of them take.

    at_once: how many run at a time. stop_when: ends runs early. Raises UserError where a run has been trained for
    longer than that.
    """
    states = [CellState(cell, updates) for cell in cells]
    for state in states:
        state.read_new_events()
        state.reopen(stop_when)
        if state.update > updates:
            raise UserError(
                f"{state.cell.folder.path} has been trained for {state.update} updates, and train.duration asks for "
                f"{updates}; give a longer duration, or choose another folder with {option('out')}"
            )
    left = sum(updates - state.update for state in states if not state.over)
    finished = sum(state.over for state in states)
    runs = f"{counted(len(cells), 'run')} of {counted(updates, 'update')}"
    if finished:
        runs += f", {finished} of them finished"
    if not left:
        return runs
    said = f"{runs}; {at_once} at a time"
    config = cells[0].config
    if config.train.device != "cpu":
        return said
    seconds = trial_seconds(config, corpus) * config.train.accumulation
    total = seconds * max(
        left / min(at_once, len(cells) - finished), max(updates - s.update for s in states if not s.over)
    )
    return f"{said}; about {duration(total)} of training, by the time of one trial batch"


def trial_seconds(config: RunConfig, corpus: AnyCorpus) -> float:
    """Time of one batch of a training on the CPU, forward and backward, in the threads of a run."""
    task = task_of(config)
    threads = torch.get_num_threads()
    torch.set_num_threads(int(config.train.threads))
    try:
        model, batch = task.build(config, corpus.codec), task.batches(config, corpus)(0)
        model.train()
        seconds = _LONG_SECONDS
        # A first pass is slow; where a pass is long it need not be repeated.
        for _ in range(3):
            begun = time.perf_counter()
            batch.loss(batch.run(model)).backward()  # type: ignore[no-untyped-call]
            last, seconds = seconds, time.perf_counter() - begun
            if seconds > _LONG_SECONDS:
                break
    finally:
        torch.set_num_threads(threads)
    return min(last, seconds)


@dataclass(frozen=True, slots=True)
class _PlacementCost:
    """Of one process that trains the model."""

    parameters: int
    memory_bytes: int
    """Weights, gradients, the optimiser's state, and what the passes of a batch keep."""
    flops: float
    """Of an update, in products."""
    seconds: float
    """Of a batch on this machine's CPU, forward and backward: the least of a few."""

    def __post_init__(self) -> None:
        if not all(value > 0 for value in astuple(self)):
            raise ValueError(f"what a placement takes is above 0, got {self}")


_Costs = Mapping[str, _PlacementCost]
"""By the name of the placement."""


def costs_of(cells: Sequence[Cell], corpus: AnyCorpus, known: _Costs) -> _Costs:
    """Of every placement among the cells, and those that are known; empty for a task that does not ask for it.

    Raises UserError where the model cannot have one of the placements.
    """
    if not task_of(cells[0].config).weighs_placements:
        return known
    found = dict(known)
    for cell in cells:
        if cell.arm.placement not in found:
            planned = plan(cell.config)
            seconds = trial_seconds(cell.config, corpus)
            found[cell.arm.placement] = _PlacementCost(
                planned.parameters, planned.sum, planned.flops_per_update, seconds
            )
    return found


def facts_of_costs(costs: _Costs) -> FactLines:
    """A row for each placement, in multiples of what the model as it is built takes, or else of the first."""
    rows = []
    first = costs.get(AsBuilt.name) or next(iter(costs.values()), None)
    for name, cost in costs.items():
        assert first is not None
        words = (
            f"{cost.parameters:,} parameters, {significant(cost.memory_bytes / 1e6)} MB, "
            f"{significant(1e3 * cost.seconds)} ms a batch"
        )
        if cost is not first:
            memory, time = cost.memory_bytes / first.memory_bytes, cost.seconds / first.seconds
            words += f": {memory:.2f} times the memory and {time:.2f} times the time"
        rows.append((f"Cost of {named(name).title}", words))
    return rows


def costs_from(table: Mapping[str, Mapping[str, float]]) -> _Costs:
    """As a comparison's file holds them. Raises AttributeError, TypeError or ValueError for others."""
    return {str(name): _PlacementCost(**one) for name, one in table.items()}  # type: ignore[arg-type]
