"""Where the moving numbers of runs stood at every update, and what was measured of their updates."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from normscope.compare.grid import Cell
from normscope.placement import StackShape, named
from normscope.placement.reading import read

from ..ladders.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Of one run."""

    values: Sequence[float]
    """The number at every update."""
    changes: Sequence[float]
    """The measured changes of the output, in order; none without a controller."""

    @property
    def end(self) -> float:
        return self.values[-1]

    def first_at(self, value: float) -> int | None:
        """The first update at which the number is as high; None where it never is."""
        return next((update for update, at in enumerate(self.values, 1) if at >= value), None)

    @property
    def median_change(self) -> float:
        return statistics.median(self.changes) if self.changes else math.nan


def course(cell: Cell) -> Course:
    """What the run's metrics hold of its placement's number."""
    name = number_of(cell.arm.placement)
    updates = [event for event in cell.folder.events() if event["event"] == "update"]
    return Course(
        values=[event[name] for event in updates],
        changes=[event["output_change"] for event in updates if "output_change" in event],
    )


def number_of(placement: str) -> str:
    """The name of its number that follows a schedule."""
    shape = StackShape(kind="encoder", width=8, ffn_width=8, encoder_blocks=1)
    return next(iter(read(named(placement)(shape)).schedules))


def courses(runs: Sequence[Run]) -> list[Course]:
    """Of those that stayed finite."""
    return [course(run.cell) for run in runs if run.finite]
