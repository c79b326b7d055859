"""The trainings of every placement and what moves its number, and where those numbers stood."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope.measure import Estimate
from normscope.placement import StackShape, named
from normscope.placement.reading import read
from normscope.runs.config import replaced
from normscope.tasks.run_config import RunConfig

from ..engine.ladders import Ladder, LadderArm, LadderRun, WarmupPair, climb
from ..engine.models import trial
from ..engine.pieces import Pieces
from .config import POST, PRE, AdaptiveStudyConfig, Drive, PlacementDrive, title


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRuns:
    """All placements of one task, with what moves their numbers."""

    task: str
    unigram_nats: float
    pairs: Mapping[PlacementDrive, WarmupPair]

    @property
    def words(self) -> str:
        """The task's name in a sentence."""
        return self.task.replace("-", " ")

    @property
    def kinds(self) -> list[PlacementDrive]:
        """The lowest loss first, each with the better of its warm-ups."""
        return sorted(self.pairs, key=lambda kind: self.pairs[kind].better.mean_nats)

    @property
    def moved(self) -> list[PlacementDrive]:
        """Those whose number moves."""
        return [kind for kind in self.pairs if kind[1] != "fixed"]

    @property
    def pre(self) -> Ladder:
        """Pre-LN, with or without warm-up, whichever is better."""
        return self.pairs[PRE, "fixed"].better

    @property
    def post(self) -> Ladder:
        """Post-LN with warm-up."""
        return self.pairs[POST, "fixed"].warm

    @property
    def best_fixed(self) -> PlacementDrive:
        """Of the placements whose numbers stay, the one that ends lowest."""
        return next(kind for kind in self.kinds if kind[1] == "fixed")

    @property
    def fixed(self) -> Ladder:
        """The runs of `best_fixed`, with or without warm-up, whichever is better."""
        return self.pairs[self.best_fixed].better

    def above(self, kind: PlacementDrive, other: Ladder) -> Estimate:
        """By how many nats it ends above other runs, at its own better warm-up; over seeds in pairs."""
        return self.pairs[kind].better.less(other)

    def named(self, kind: PlacementDrive) -> str:
        """An arm in words that name the task too."""
        return f"{title(*kind)} ({self.words})"


def trained(config: AdaptiveStudyConfig, task: str, pieces: Pieces) -> AdaptiveRuns:
    """Train what the folder lacks, the ladder first. Raises UserError for text that is not there or a training that
    failed, and Interrupted."""
    of_task = trial(config, task)
    pairs = climb(arms(config, of_task.base, pieces.folder / task), config, pieces, stage=of_task.words)
    return AdaptiveRuns(task=task, unigram_nats=of_task.unigram_nats, pairs=pairs)


def arms(config: AdaptiveStudyConfig, base: RunConfig, folder: Path) -> dict[PlacementDrive, LadderArm]:
    """What is trained: every placement with what moves its number, each way in a folder of its own."""
    ways: Mapping[Drive, Mapping[str, Any]] = {
        "fixed": {},
        "schedule": {"adaptive__over": config.over_updates},
        "controller": {
            "adaptive__controller": "output-change",
            "adaptive__over": config.controlled_over_updates,
            "adaptive__largest_change": config.largest_change,
            "adaptive__measure_every": config.measure_every,
        },
    }
    return {
        (placement, drive): LadderArm(
            base=replaced(base, **ways[drive]), placement=placement, folder=folder / drive, peak_lrs=config.peak_lrs
        )
        for placement, drive in config.kinds
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Motion:
    """How a run's number moved."""

    values: Sequence[float]
    """The number at every update."""
    changes: Sequence[float]
    """The measured changes of the output, in order; none without a controller."""

    @property
    def end(self) -> float:
        """Where the number stands after the last update."""
        return self.values[-1]

    def first_at(self, value: float) -> int | None:
        """The first update at which the number is as high; None where it never is."""
        return next((update for update, at in enumerate(self.values, 1) if at >= value), None)

    @property
    def median_change(self) -> float:
        """Of the measured changes; NaN without any."""
        return statistics.median(self.changes) if self.changes else math.nan


def motions(runs: Sequence[LadderRun]) -> list[Motion]:
    """What the metrics of the runs that stayed finite hold of their numbers."""
    made = []
    for run in runs:
        if run.finite:
            name = number_of(run.cell.arm.placement)
            updates = [event for event in run.cell.folder.events() if event["event"] == "update"]
            changes = [event["output_change"] for event in updates if "output_change" in event]
            made.append(Motion(values=[event[name] for event in updates], changes=changes))
    return made


def number_of(placement: str) -> str:
    """The name of its number that follows a schedule."""
    shape = StackShape(kind="encoder", width=8, ffn_width=8, encoder_blocks=1)
    return next(iter(read(named(placement)(shape)).schedules))
