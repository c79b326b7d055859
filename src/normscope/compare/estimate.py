"""How much work a grid is, said before it begins."""

import time
from collections.abc import Sequence

import torch

from ..errors import UserError, option
from ..report.words import counted, duration
from ..tasks.protocol import AnyCorpus
from ..tasks.registry import task_from_scratch
from ..tasks.run_config import RunConfig
from ..train import StopRule, durations
from .grid import Cell
from .state import CellState

_LONG_SECONDS = 1.0


def updates_of(config: RunConfig, corpus: AnyCorpus) -> int:
    """Updates of a whole run. Raises UserError where the corpus has no use for the task."""
    objective = task_from_scratch(config, "nothing to compare").objective(config, corpus, torch.device("cpu"))
    return durations(objective, config.train)(config.train.duration)


def announced(
    cells: Sequence[Cell], corpus: AnyCorpus, *, updates: int, at_once: int | None, stop_when: StopRule | None = None
) -> str:
    """A line that says how many runs there are, how long each is, and about how long all of them take.

    at_once: how many run at a time; None where that is not known. stop_when: ends runs early.

    Raises UserError where a run has been trained for longer than that.
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
    if at_once is None:
        return f"{runs}, as many at a time as there is room for"
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
    task = task_from_scratch(config, "nothing to compare")
    threads = torch.get_num_threads()
    torch.set_num_threads(int(config.train.threads))
    try:
        model, batch = task.build(config, task.codec_of(corpus)), task.first_batch(config, corpus)
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
