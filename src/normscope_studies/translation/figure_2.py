"""The arms of Xiong et al. 2020, figure 2, and the controlled ones beside them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from normscope.optim import ScheduleConfig

from ..engine.checks import check_different, check_rising
from . import config
from .arms import TranslationArm, controlled, coupled, of_equal_sum, peak_of_equal_sum

PAPERS_SCHEDULE = "the paper's schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateGroup:
    """One optimiser at one rate: the paper's family, the controlled one, and the two that hold the
    summed rate.

    The paper varies the length of warm-up under Adam alone: None under another.
    """

    optimizer: str
    peak_lr: float
    without: TranslationArm
    """The paper's "no warm-up": T = 1 of the coupled schedule."""
    long: TranslationArm
    """T = 4000 of the paper; of the controlled family too, whose decay begins there."""
    short: TranslationArm | None
    """T = 500 of the paper."""
    without_equal_sum: TranslationArm
    """The arm without warm-up, with the peak and the summed rate of `long`."""
    long_equal_sum: TranslationArm
    """The schedule of `long`, with the summed rate of `without`: its peak is lower."""
    controlled_without: TranslationArm | None
    """The arm without warm-up, decay from where the long warm-up ends."""
    controlled_short: TranslationArm | None

    @property
    def ratio(self) -> float:
        """The summed rate with warm-up over that without."""
        return self.long.summed_lr / self.without.summed_lr

    def arms(self) -> list[TranslationArm]:
        """The paper's first."""
        return list({**self.paper_family(), **self.controlled_family()}.values())

    def paper_family(self) -> dict[str, TranslationArm]:
        """Returns the arms by their words in the legend."""
        return _there(
            {"no warm-up": self.without, _warm(self.long): self.long, _warm(self.short): self.short}
        )

    def controlled_family(self) -> dict[str, TranslationArm]:
        """Returns the arms by their words in the legend."""
        long = _warm(self.long)
        return _there(
            {
                long: self.long,
                f"no warm-up, cumulative learning rate of {long}": self.without_equal_sum,
                f"{long}, cumulative learning rate of no warm-up": self.long_equal_sum,
                "no warm-up, one decay": self.controlled_without,
                f"{_warm(self.controlled_short)}, one decay": self.controlled_short,
            }
        )

    def shorter_warmups(self) -> dict[str, TranslationArm]:
        """Returns the arms with the shorter warm-up by family; none where the length of warm-up is
        not varied.
        """
        return _there({PAPERS_SCHEDULE: self.short, "one decay for both": self.controlled_short})

    def without_warmup(self) -> dict[str, dict[str, TranslationArm]]:
        """Returns the arms without warm-up by family, and in it by what the run has of the one with
        warm-up: all that have as much cumulative learning rate as it, or more.
        """
        alike = {"one sum": self.without_equal_sum}
        decay = self.controlled_without
        if decay is not None and decay.summed_lr >= self.long.summed_lr:
            alike["one decay"] = decay
        return {PAPERS_SCHEDULE: {"": self.without}, "as much cumulative learning rate": alike}


def _there(arms: Mapping[str, TranslationArm | None]) -> dict[str, TranslationArm]:
    return {words: arm for words, arm in arms.items() if arm is not None}


def _warm(arm: TranslationArm | None) -> str:
    return "" if arm is None else f"warm-up {arm.schedule.warmup_updates:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure2Config(config.RunsConfig):
    """Post-LN at two rates of Adam and two of SGD."""

    optimizers: tuple[str, ...] = ("adam", "sgd")
    """The optimisers to train: `["adam"]` leaves SGD for later."""
    adam_lrs: tuple[float, ...] = config.ADAM_LRS
    sgd_lrs: tuple[float, ...] = config.SGD_LRS
    sgd_ladder: tuple[float, ...] = ()
    """The rates of SGD, as `adam_ladder`."""

    RATES: ClassVar[Mapping[str, tuple[str, ...]]] = {"adam": ("adam_lrs",), "sgd": ("sgd_lrs",)}

    def __post_init__(self) -> None:
        config.RunsConfig.__post_init__(self)
        if not self.optimizers or not set(self.optimizers) <= {"adam", "sgd"}:
            raise ValueError(f"optimizers must be adam, sgd or both, got {list(self.optimizers)}")
        for name in self.optimizers:
            check_different(self, f"{name}_lrs")
            check_rising(self, f"{name}_lrs")

    def groups(self, optimizer: str) -> list[RateGroup]:
        """Returns the arms of an optimiser, one group a rate."""
        return [
            self._group(optimizer, rate)
            for rate in (self.adam_lrs if optimizer == "adam" else self.sgd_lrs)
        ]

    def every_group(self) -> list[RateGroup]:
        """All of them, Adam's first."""
        return [group for name in self.optimizers for group in self.groups(name)]

    def arms(self) -> list[TranslationArm]:
        """All of them, Adam's first."""
        return list(dict.fromkeys(arm for group in self.every_group() for arm in group.arms()))

    def _group(self, optimizer: str, peak_lr: float) -> RateGroup:
        long, updates = coupled(self.long_warmup_updates), self.updates

        def arm(schedule: ScheduleConfig, rate: float = peak_lr) -> TranslationArm:
            return TranslationArm(
                optimizer=optimizer, peak_lr=rate, schedule=schedule, updates=updates
            )

        several = optimizer == "adam"
        short, start = self.short_warmup_updates, self.long_warmup_updates
        return RateGroup(
            optimizer=optimizer,
            peak_lr=peak_lr,
            without=arm(coupled(1)),
            long=arm(long),
            short=arm(coupled(short)) if several else None,
            without_equal_sum=arm(of_equal_sum(long, updates)),
            long_equal_sum=arm(long, peak_of_equal_sum(long, coupled(1), peak_lr, updates)),
            controlled_without=arm(controlled(0, start)) if several else None,
            controlled_short=arm(controlled(short, start)) if several else None,
        )


SCALES = config.figure_scales(
    Figure2Config,
    smoke={"adam_lrs": config.ADAM_LRS[-1:], "sgd_lrs": config.SGD_LRS[-1:]},
    paper={"adam_lrs": config.PAPER_ADAM_LRS, "sgd_lrs": config.PAPER_SGD_LRS},
    multi30k={
        "adam_lrs": (0.5, 1.0),
        "sgd_lrs": (0.2, 1.0),
        "sgd_ladder": (0.5, 1.0, 2.0, 4.0),
    },
)
"""The multiples at multi30k are as far apart as the paper's rates: a factor of two under Adam, of
five under SGD.

Cost: smoke takes seconds; cpu some four hours of one core; multi30k 74 trainings of about thirteen
minutes of one core; paper 66 trainings of 16,500 updates
of 4,096 tokens, some 20 minutes each on an accelerator and three days each on a core."""
