"""The plan of a fine-tuning search and its approximate cost, before anything is trained.

Minutes are of real updates of a throw-away model, so that they are an estimate.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch

from ..adapters.fine_tuning import BETAS, EPSILON, WEIGHT_DECAY
from ..report.words import counted, significant, unit_time
from .cells import TuningCell, TuningSetting
from .opened import FineTuningConfig, OpenedSearch, open_search
from .page import refuse_other_page
from .search import SearchOptions, notes
from .summary import best_setting

_TRIALS = 3
_LONG_SECONDS = 2.0
"""The timed updates at most, and the seconds of one after which no further one is timed."""

SecondsOf = Callable[[OpenedSearch, int], float]
"""Seconds of an update of so many rows."""


@dataclass(frozen=True, slots=True)
class LeftUpdates:
    """Updates that are left of some trainings, and about how long they take."""

    updates: int = 0
    seconds: float = 0.0

    def __add__(self, other: "LeftUpdates") -> "LeftUpdates":
        return LeftUpdates(self.updates + other.updates, self.seconds + other.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """Trainings of a search: those that choose a setting, or those of the best one."""

    what: str
    trainings: int
    finished: int
    least: LeftUpdates
    """The updates where the best setting is the shortest."""
    most: LeftUpdates
    """The updates where the best setting is the longest; the same where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """All that is known of a search beforehand."""

    notes: Sequence[str]
    """The notes on the data for the user."""
    stages: Sequence[PlannedStage]
    seconds_of: dict[int, float]
    """Rows of a batch -> seconds of an update of it."""
    unit: str
    """The unit of the cost: core, or device."""

    def lines(self) -> list[str]:
        """Returns the lines that the terminal shows."""
        lines = [*self.notes, *(_stage_line(one, self.unit) for one in self.stages)]
        least = sum((one.least for one in self.stages), LeftUpdates())
        most = sum((one.most for one in self.stages), LeftUpdates())
        lines.append(f"in all: {_taken(least, most, self.unit)}")
        if not self.seconds_of:
            return [*lines, "every training is finished; nothing was trained"]
        timed = " and ".join(
            f"{significant(seconds, 2)} seconds for an update of {counted(rows, 'row')}"
            for rows, seconds in self.seconds_of.items()
        )
        return [
            *lines,
            f"an estimate, by {timed}, which one {self.unit} took just now; loading and judging "
            "are not in it; nothing was trained",
        ]


def seconds_of_update(opened: OpenedSearch, batch_sequences: int) -> float:
    """Returns how long an update of so many rows takes: of one core, by the time of this process
    alone, so that others on the machine do not slow it down; or of the device.

    The model that is updated is thrown away.
    """
    device = torch.device(opened.device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as every training has it
    try:
        model = opened.start.classifier(
            len(opened.data.labels), dropout=opened.config.dropout, seed=1
        ).to(device)
        model.train()
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=0.0, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY
        )
        count = min(batch_sequences, len(opened.data.train))
        rows = opened.data.batch([opened.data.train[row] for row in range(count)])
        batch = {name: value.to(device) for name, value in rows.items()}

        def update() -> None:
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
                loss = model(**batch)["loss"]
            loss.backward()
            optimizer.step()

        update()  # the first one makes the optimiser's state
        return _shortest(update, device)
    finally:
        torch.set_num_threads(threads)


def _shortest(work: Callable[[], None], device: torch.device) -> float:
    shortest = math.inf
    for _ in range(_TRIALS):
        begun = _now(device)
        work()
        shortest = min(shortest, _now(device) - begun)
        if shortest > _LONG_SECONDS:
            break
    return shortest


def _now(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def plan(
    config: FineTuningConfig,
    folder: Path,
    options: SearchOptions,
    *,
    seconds_of: SecondsOf = seconds_of_update,
) -> SearchPlan:
    """Counts what `search` would train; nothing is trained and nothing written.

    Raises UserError where the encoder, the files or the folder do not fit.
    """
    opened = open_search(config)
    refuse_other_page(folder)
    settings = list(options.space.settings())
    searched = opened.cells(settings, [1], folder)
    others = _of_best(opened, searched, options.seeds, folder)
    cells = [*searched, *chain.from_iterable(others)]
    left = [cell for cell in cells if cell.scores() is None]
    sizes = dict.fromkeys(cell.setting.batch_sequences for cell in left)
    timed = {rows: seconds_of(opened, rows) for rows in sizes}
    stages = [_stage("the settings, one seed each", [searched], timed)]
    if len(settings) == 1:
        stages = [_stage("the one setting", [[*searched, *others[0]]], timed)]
    elif options.seeds > 1:
        stages.append(_stage("the best setting, its other seeds", others, timed))
    return SearchPlan(
        notes=notes(opened),
        stages=stages,
        seconds_of=timed,
        unit="core" if opened.device == "cpu" else "device",
    )


def _of_best(
    opened: OpenedSearch, searched: Sequence[TuningCell], seeds: int, folder: Path
) -> list[list[TuningCell]]:
    """Returns the trainings beyond the first seed of every setting that may be the best: of one
    where it is known.
    """
    settings: Iterable[TuningSetting] = [cell.setting for cell in searched]
    if all(cell.scores() is not None for cell in searched):
        settings = [best_setting(searched)]
    return [opened.cells([one], range(2, seeds + 1), folder) for one in settings]


def _stage(
    what: str, ways: Sequence[Sequence[TuningCell]], seconds_of: dict[int, float]
) -> PlannedStage:
    """Counts a stage that goes one of several ways."""
    left = [_left(cells, seconds_of) for cells in ways]
    finished = min(map(_finished, ways))
    return PlannedStage(
        what=what,
        trainings=len(ways[0]),
        finished=finished,
        least=min(left, key=lambda one: (one.seconds, one.updates)),
        most=max(left, key=lambda one: (one.seconds, one.updates)),
    )


def _finished(cells: Iterable[TuningCell]) -> int:
    return sum(cell.scores() is not None for cell in cells)


def _left(cells: Iterable[TuningCell], seconds_of: dict[int, float]) -> LeftUpdates:
    found = LeftUpdates()
    for cell in cells:
        if cell.scores() is None:
            seconds = seconds_of[cell.setting.batch_sequences]
            found += LeftUpdates(cell.updates, cell.updates * seconds)
    return found


def _stage_line(one: PlannedStage, unit: str) -> str:
    parts = [counted(one.trainings, "training")]
    if one.finished:
        parts.append(f"{one.finished} of them finished")
    return f"{one.what}: {', '.join(parts)}; {_taken(one.least, one.most, unit)}"


def _taken(least: LeftUpdates, most: LeftUpdates, unit: str) -> str:
    """Updates and time, from the least to the most where these differ."""
    if not most.updates:
        return "nothing is left"
    if least == most:
        return f"{counted(most.updates, 'update')}, {unit_time(most.seconds, unit)}"
    return (
        f"from {counted(least.updates, 'update')}, {unit_time(least.seconds, unit)}, to "
        f"{most.updates:,}, {unit_time(most.seconds, unit)}, by which setting is the best"
    )
