"""The plan of a study and its approximate cost, counted before anything is trained.

Operations are torch's count of the products of an update; hours are these over the speed of a core,
which one small batch shows, so that they are an estimate.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from normscope.compare.grid import Cell
from normscope.compare.state import looked_at
from normscope.optim import make_optimizer
from normscope.report.words import counted, significant, unit_time
from normscope.runs.machine import (
    blocks_of,
    counting,
    flops_per_update,
    prepare_machine,
    with_blocks,
)
from normscope.tasks.registry import task_of
from normscope.tasks.run_config import RunConfig

ACCELERATOR_FLOPS = 1e14
"""Operations a second by which hours of an accelerator are stated; nothing is measured on it."""
_TRIAL_TOKENS = 2048
_TRIALS = 3
_LONG_SECONDS = 2.0
"""The number of times that the batch that shows a core's speed is trained on, and the seconds after
which once is enough.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRuns:
    """Trainings of one stage of a study."""

    stage: str
    runs: int
    over: int
    """The number of these that are finished already."""
    updates: int
    """The updates that are left, of all runs together."""
    tokens: float
    """The tokens that these updates read; NaN where batches do not tell."""
    flops: float
    """Floating-point operations of these updates, forward and backward."""
    config: RunConfig | None = None
    """The configuration of one of them, by which a core's speed is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """All that is known beforehand."""

    stages: Sequence[PlannedRuns]
    ends: str = ""
    """The work that follows and cannot be counted, in words; empty where there is none."""

    @property
    def config(self) -> RunConfig | None:
        """The configuration by which a core's speed is measured."""
        return next((one.config for one in self.stages if one.config is not None), None)


class PlanEnds(Exception):
    """A plan goes no further: what comes hangs on what is trained or measured first."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class Corpora:
    """The corpora of a plan's trainings, each opened once: models share them, and some take
    seconds.
    """

    def __init__(self) -> None:
        self._opened: dict[str, Any] = {}

    def of(self, config: RunConfig) -> Any:
        """Returns the corpus of a training. Raises UserError where it cannot be opened."""
        # A model of the user's own brings its data in a file that is imported.
        key = repr((config.task, config.data, config.imports))
        if key not in self._opened:
            self._opened[key] = task_of(config).open(config)
        return self._opened[key]


def planned_cells(
    stage: str,
    cells: Sequence[Cell],
    corpora: Corpora,
    *,
    is_kept: Callable[[Cell], bool] = lambda cell: False,
) -> PlannedRuns:
    """Counts what is left of some runs.

    corpora: those that the plan has opened so far. is_kept: tells of a run without a folder that it
    is finished all the same. Raises UserError for a corpus that is not there.
    """
    over = 0
    updates = 0
    tokens = 0.0
    flops = 0.0
    states = looked_at(cells, None, None)
    known: dict[str, tuple[float, float]] = {}
    for state in states:
        config = state.cell.config
        # Seeds, rates and warm-ups change no operation of an update.
        alike = repr((config.task, config.model, config.data, config.train))
        if alike not in known:
            corpus = corpora.of(config)
            known[alike] = tokens_per_update(config, corpus), flops_per_update(config, corpus)
        is_over = state.over or is_kept(state.cell)
        over += is_over
        left = 0 if is_over else max(0, (state.total_updates or 0) - state.update)
        updates += left
        tokens += left * known[alike][0]
        flops += left * known[alike][1]
    return PlannedRuns(
        stage=stage,
        runs=len(cells),
        over=over,
        updates=updates,
        tokens=tokens,
        flops=flops,
        config=cells[0].config,
    )


def tokens_per_update(config: RunConfig, corpus: Any) -> float:
    """Returns how many tokens the first update reads, of both sides of a pair; NaN where its
    batches do not tell.

    corpus: of the configuration.
    """
    objective: Any = task_of(config).objective(config, corpus, torch.device("cpu"))
    total = 0
    for number in range(config.train.accumulation):
        batch = objective.micro_batch(number)
        lengths = [value for name, value in vars(batch).items() if name.endswith("lengths_B")]
        if not lengths:
            return math.nan
        total += sum(int(one.sum()) for one in lengths)
    return float(total)


def core_flops(config: RunConfig) -> float:
    """Returns operations a second of one core, in updates of a small batch of a training.

    By the time of this process alone: others on the machine do not slow it down. One block of each
    stack does, as all are alike: a thousand of them would take more memory than there is.
    """
    task = task_of(config)
    corpus, device = task.open(config), torch.device("cpu")
    shallow = with_blocks(config, dict.fromkeys(blocks_of(config), 1))
    few = task.in_smaller_batches(shallow, _TRIAL_TOKENS)
    few = dataclasses.replace(few, train=dataclasses.replace(few.train, device="cpu", threads=1))
    prepare_machine(few, device)
    model = task.build(few, corpus.codec)
    groups = task.groups(few)
    optimizer = make_optimizer(model, few.optimizer, None if groups is None else groups(model))
    objective: Any = task.objective(few, corpus, device)
    batch = objective.micro_batch(0)

    def update() -> None:
        optimizer.zero_grad()
        loss, _ = objective.loss_sums(model, batch)
        (loss / objective.target_tokens(batch)).backward()
        optimizer.step()

    with counting() as counted_flops:
        update()
    seconds = math.inf
    for _ in range(_TRIALS):
        begun = time.process_time()
        update()
        seconds = min(seconds, time.process_time() - begun)
        if seconds > _LONG_SECONDS:
            break
    return float(counted_flops.get_total_flops()) / seconds


def plan_lines(
    found: StudyPlan, *, speed_of: Callable[[RunConfig], float] = core_flops
) -> list[str]:
    """Returns the lines that the terminal shows of a plan. speed_of: operations a second of a
    core.
    """
    if not found.stages:
        return [f"Nothing to train is known beforehand: {found.ends or 'it trains nothing'}."]
    config = found.config
    on_core = config is not None and config.train.device == "cpu"
    speed = speed_of(config) if config is not None and on_core else ACCELERATOR_FLOPS
    lines = [_stage_line(one, speed, on_core=on_core) for one in found.stages]
    updates = sum(one.updates for one in found.stages)
    flops = sum(one.flops for one in found.stages)
    lines.append(f"in all: {counted(updates, 'update')}, {_cost(flops, speed, on_core=on_core)}")
    if found.ends:
        lines.append(f"not counted: {found.ends}")
    how = (
        f"{speed / 1e9:.0f} billion operations a second, which one core reached in updates of a "
        "small batch just now; validations are not in it"
        if on_core
        else f"{ACCELERATOR_FLOPS:.0e} operations a second of an accelerator, which is stated and "
        "not measured"
    )
    lines.append(f"an estimate, by {how}; nothing was trained")
    return lines


def _stage_line(one: PlannedRuns, speed: float, *, on_core: bool) -> str:
    parts = [counted(one.runs, "training")]
    if one.over:
        parts.append(f"{one.over} of them finished")
    parts.append(counted(one.updates, "update"))
    if not math.isnan(one.tokens):
        parts.append(f"{significant(one.tokens, 3)} tokens")
        if one.tokens:
            parts.append(f"{significant(one.flops / one.tokens, 3)} operations a token")
    return f"{one.stage}: {', '.join(parts)}; {_cost(one.flops, speed, on_core=on_core)}"


def _cost(flops: float, speed: float, *, on_core: bool) -> str:
    """Operations, and the time that one core or one accelerator takes for them."""
    if not flops:
        return "nothing is left"
    unit = "core" if on_core else "accelerator"
    return f"{significant(flops, 3)} operations, {unit_time(flops / speed, unit)}"
