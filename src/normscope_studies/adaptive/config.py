"""Which placements have a number that moves, by what it is moved, and how large the study is asked."""

from dataclasses import dataclass
from typing import Literal

from normscope.placement import named

from ..engine.checks import check_different, check_positive
from ..engine.models import PAPER_SIZE, TwoTasksConfig
from ..engine.study import scales

PRE, POST = "pre-ln", "post-ln"
"""What both ends are compared with."""
FAMILIES = ("pre-to-post", "post-to-pre", "branch-norm", "branch-norm-by-depth", "deepnorm-to-post")
"""Placements with a number that goes from 0 to 1."""
CONTROLLED = ("pre-to-post", "branch-norm", "deepnorm-to-post")
"""Those of them that a controller moves too."""
BEST_FIXED = ("attn-res-inkling",)
"""The registry's best of 33 in `results/streams`, and the second best in `results/streams_translation`: chosen there,
on other text, before this study."""

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
