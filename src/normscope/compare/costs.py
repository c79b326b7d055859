"""What each placement of a comparison takes in memory and time, beside the first one, for models that are the user's.

Our own models' placements are weighed by a study; what they cost a model of the user's is known once it is built.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from ..placement import AsBuilt, named
from ..report.words import significant
from ..runs.machine import plan
from ..tasks.protocol import AnyCorpus, FactLines
from ..tasks.registry import task_from_scratch
from .grid import Cell
from .pool import trial_seconds


@dataclass(frozen=True, slots=True)
class PlacementCost:
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


Costs = Mapping[str, PlacementCost]
"""By the name of the placement."""


def costs_of(cells: Sequence[Cell], corpus: AnyCorpus, known: Costs) -> Costs:
    """Of every placement among the cells, and those that are known; empty for a task that does not ask for it.

    Raises UserError where the model cannot have one of the placements.
    """
    task = task_from_scratch(cells[0].config, "nothing to compare")
    if not task.weighs_placements:
        return known
    found = dict(known)
    for cell in cells:
        if cell.arm.placement not in found:
            planned = plan(task, cell.config)
            seconds = trial_seconds(cell.config, corpus)
            found[cell.arm.placement] = PlacementCost(
                planned.parameters, planned.sum, planned.flops_per_update, seconds
            )
    return found


def facts_of_costs(costs: Costs) -> FactLines:
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


def costs_from(table: Mapping[str, Mapping[str, float]]) -> Costs:
    """As a comparison's file holds them. Raises AttributeError, TypeError or ValueError for others."""
    return {str(name): PlacementCost(**one) for name, one in table.items()}  # type: ignore[arg-type]
