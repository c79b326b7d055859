"""The arms of Xiong et al. 2020, figure 2, and the controlled ones beside them."""

from dataclasses import dataclass

from normscope.optim import ScheduleConfig

from ..engine.checks import check_different, check_rising
from .config import (
    ADAM_LRS,
    PAPER_ADAM_LRS,
    PAPER_SGD_LRS,
    POST,
    SGD_LRS,
    RunsConfig,
    TranslationArm,
    controlled,
    coupled,
    figure_scales,
    of_equal_sum,
    peak_of_equal_sum,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure2Config(RunsConfig):
    """Post-LN at two rates of Adam and two of SGD."""

    optimizers: tuple[str, ...] = ("adam", "sgd")
    """Those to train: `["adam"]` leaves SGD for later."""
    adam_lrs: tuple[float, ...] = ADAM_LRS
    sgd_lrs: tuple[float, ...] = SGD_LRS

    def __post_init__(self) -> None:
        RunsConfig.__post_init__(self)
        if not self.optimizers or not set(self.optimizers) <= {"adam", "sgd"}:
            raise ValueError(f"optimizers must be adam, sgd or both, got {list(self.optimizers)}")
        for name in self.optimizers:
            check_different(self, f"{name}_lrs")
            check_rising(self, f"{name}_lrs")

    def rates(self, optimizer: str) -> tuple[float, ...]:
        return self.adam_lrs if optimizer == "adam" else self.sgd_lrs

    def groups(self, optimizer: str) -> list["RateGroup"]:
        """The arms of an optimiser, one group a rate."""
        return [self.group(optimizer, rate) for rate in self.rates(optimizer)]

    def every_group(self) -> list["RateGroup"]:
        """All of them, Adam's first."""
        return [group for name in self.optimizers for group in self.groups(name)]

    def arms(self) -> list[TranslationArm]:
        """All of them, Adam's first."""
        return list(dict.fromkeys(arm for group in self.every_group() for arm in group.arms()))

    def group(self, optimizer: str, peak_lr: float) -> "RateGroup":
        """The arms of one optimiser at one rate."""
        long, updates = coupled(self.long_warmup_updates), self.updates

        def arm(schedule: ScheduleConfig, rate: float = peak_lr) -> TranslationArm:
            return TranslationArm(placement=POST, optimizer=optimizer, peak_lr=rate, schedule=schedule, updates=updates)

        # The paper varies the length of warm-up under Adam alone.
        several = optimizer == "adam"
        short, start = self.short_warmup_updates, self.long_warmup_updates
        return RateGroup(
            optimizer=optimizer,
            peak_lr=peak_lr,
            without=arm(coupled(1)),
            short=arm(coupled(short)) if several else None,
            long=arm(long),
            controlled_without=arm(controlled(0, start)) if several else None,
            controlled_short=arm(controlled(short, start)) if several else None,
            without_equal_sum=arm(of_equal_sum(long, updates)),
            long_equal_sum=arm(long, peak_of_equal_sum(long, coupled(1), peak_lr, updates)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateGroup:
    """One optimiser at one rate: the paper's family, the controlled one, and the two that hold the summed rate."""

    optimizer: str
    peak_lr: float
    without: TranslationArm
    """The paper's "no warm-up": T = 1 of the coupled schedule."""
    short: TranslationArm | None
    """T = 500 of the paper; it varies T under Adam alone."""
    long: TranslationArm
    """T = 4000 of the paper; of the controlled family too, whose decay begins there."""
    controlled_without: TranslationArm | None
    """No warm-up, decay from where the long warm-up ends."""
    controlled_short: TranslationArm | None
    without_equal_sum: TranslationArm
    """No warm-up, with the peak and the summed rate of `long`."""
    long_equal_sum: TranslationArm
    """The schedule of `long`, with the summed rate of `without`: its peak is lower."""

    def arms(self) -> list[TranslationArm]:
        """The paper's first."""
        arms = (self.without, self.long, self.short, self.without_equal_sum, self.long_equal_sum)
        return [arm for arm in (*arms, self.controlled_without, self.controlled_short) if arm is not None]

    def paper_family(self) -> dict[str, TranslationArm]:
        """By their words in the legend."""
        found = {"no warm-up": self.without, _warm(self.long): self.long}
        return found | ({_warm(self.short): self.short} if self.short is not None else {})

    def controlled_family(self) -> dict[str, TranslationArm]:
        """By their words in the legend."""
        long = _warm(self.long)
        found = {
            long: self.long,
            f"no warm-up, cumulative learning rate of {long}": self.without_equal_sum,
            f"{long}, cumulative learning rate of no warm-up": self.long_equal_sum,
        }
        if self.controlled_without is not None and self.controlled_short is not None:
            found["no warm-up, one decay"] = self.controlled_without
            found[f"{_warm(self.controlled_short)}, one decay"] = self.controlled_short
        return found

    def shorter_warmups(self) -> dict[str, TranslationArm]:
        """By family; none where the length of warm-up is not varied."""
        families = {"the paper's schedule": self.short, "one decay for both": self.controlled_short}
        return {name: arm for name, arm in families.items() if arm is not None}


def _warm(arm: TranslationArm) -> str:
    return f"warm-up {arm.schedule.warmup_updates:,}"


SCALES = figure_scales(
    Figure2Config,
    smoke={"adam_lrs": ADAM_LRS[-1:], "sgd_lrs": SGD_LRS[-1:]},
    paper={"adam_lrs": PAPER_ADAM_LRS, "sgd_lrs": PAPER_SGD_LRS},
)
"""Cost: smoke takes seconds; cpu some four hours of one core; paper 66 trainings of 16,500 updates of 4,096 tokens,
some 20 minutes each on an accelerator and three days each on a core."""
