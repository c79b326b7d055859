"""Which placements have a number that moves, by what it is moved, how large that is asked, and the trainings."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from normscope.measure import Estimate
from normscope.placement import StackShape, named
from normscope.placement.reading import read
from normscope.runs.config import replaced
from normscope.tasks.run_config import RunConfig

from ..engine.checks import check_different, check_positive
from ..engine.ladders import Ladder, LadderArm, LadderRun, WarmupPair, climb
from ..engine.models import PAPER_SIZE, TwoTasksConfig, trial
from ..engine.pieces import Pieces
from ..engine.study import scales

PRE, POST = "pre-ln", "post-ln"
"""What both ends are compared with."""
FAMILIES = ("pre-to-post", "post-to-pre", "branch-norm", "branch-norm-by-depth", "deepnorm-to-post")
"""Placements with a number that goes from 0 to 1."""
CONTROLLED = ("pre-to-post", "branch-norm", "deepnorm-to-post")
"""Those of them that a controller moves too."""
BEST_FIXED = ("attn-res-inkling",)
"""The registry's best of 33 in `results/streams`: chosen there, on other text, before this study."""

Drive = Literal["fixed", "schedule", "controller"]
"""fixed: nothing moves; schedule: with every update; controller: with those that change the output little."""
PlacementDrive = tuple[str, Drive]
"""A placement, and what moves its number."""
_WORDS: dict[Drive, str] = {"fixed": "", "schedule": ", scheduled", "controller": ", controlled"}


def title(placement: str, drive: Drive) -> str:
    """What an arm is called."""
    return named(placement).title + _WORDS[drive]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveStudyConfig(TwoTasksConfig):
    """Small models on two tasks, alike but for the placement and what moves its number."""

    scheduled: tuple[str, ...] = FAMILIES
    """Placements whose number a schedule moves."""
    controlled: tuple[str, ...] = CONTROLLED
    """Placements whose number a controller moves."""
    best_fixed: tuple[str, ...] = BEST_FIXED
    """The best placements without such a number, beside Pre-LN and Post-LN."""
    over_updates: int = 100
    """The schedule's length."""
    controlled_over_updates: int = 40
    """The shortest time in which a controller moves the number from 0 to 1."""
    largest_change: float = 0.1
    """The controller's bound, for all: the norm of an update's change of the output over the norm of that output."""
    measure_every: int = 4
    """Updates from one measurement of the controller to the next."""
    peak_lrs: tuple[float, ...] = (1.75e-3, 4.4e-3, 1.1e-2, 2.75e-2)
    """The ladder, in rising order."""
    seeds: int = 5
    updates: int = 240
    needs_nats: float = 0.1
    """A warm-up is not needed where the runs without it end at most so much higher."""

    def __post_init__(self) -> None:
        TwoTasksConfig.__post_init__(self)
        check_different(self, "scheduled")
        check_positive(self, "over_updates", "controlled_over_updates", "measure_every", "largest_change", "needs_nats")
        for name in (*self.scheduled, *self.controlled, *self.best_fixed):
            if len(named(name).models) < 3:
                raise ValueError(f"{name} is not defined for every kind of model; leave it out")

    @property
    def kinds(self) -> list[PlacementDrive]:
        """What is trained: fixed placements, the scheduled, the controlled."""
        fixed: list[PlacementDrive] = [(name, "fixed") for name in dict.fromkeys((PRE, POST, *self.best_fixed))]
        moved: list[PlacementDrive] = [(name, "schedule") for name in self.scheduled]
        return [*fixed, *moved, *((name, "controller") for name in self.controlled)]


SCALES = scales(
    AdaptiveStudyConfig,
    smoke={
        "tasks": ("language-model",), "scheduled": ("pre-to-post",), "controlled": ("pre-to-post",),
        "best_fixed": ("rezero",), "over_updates": 2, "controlled_over_updates": 2, "measure_every": 1,
        "peak_lrs": (1e-3, 4e-3), "seeds": 2, "updates": 4, "warmup_updates": 2, "toy_pairs": 300, "width": 16,
        "ffn_width": 16, "heads": 2, "blocks": 2, "stack_blocks": 1, "sequence_length": 24, "batch_sequences": 4,
    },
    paper={"over_updates": 8_000, "controlled_over_updates": 1_000, "measure_every": 20, **PAPER_SIZE},
)  # fmt: skip
"""Cost: smoke takes seconds; cpu some 350 runs of five to ten seconds of one core; paper, with models of 80 million
parameters, some 970 runs of an hour of an accelerator."""


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
