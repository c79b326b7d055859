"""The arms of Xiong et al. 2020, figure 6 (appendix H)."""

from dataclasses import dataclass

from normscope.optim import ScheduleConfig

from ..translation.arms import Arm
from ..translation.config import RunsConfig
from ..translation.scales import ADAM_LRS, PAPER_ADAM_LRS, scales
from ..translation.schedules import controlled, coupled


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure6Config(RunsConfig):
    """Post-LN under Adam at a large rate, and at a tenth of it that stays."""

    peak_lr: float = ADAM_LRS[-1]
    small_lr: float = ADAM_LRS[-1] / 10
    """1e-4 beside 1e-3 in the paper."""
    small_epochs: int = 27
    """How long the paper follows the small rate; the others end after `epochs`."""

    def __post_init__(self) -> None:
        RunsConfig.__post_init__(self)
        if not 0 < self.small_lr < self.peak_lr:
            raise ValueError(f"small_lr={self.small_lr} must be positive and below peak_lr={self.peak_lr}")
        if self.small_epochs < self.epochs:
            raise ValueError(f"small_epochs={self.small_epochs} must be at least epochs={self.epochs}")

    @property
    def small(self) -> Arm:
        """No warm-up, a small rate that stays, for as long as the paper."""
        updates = self.small_epochs * self.epoch_updates
        return Arm(peak_lr=self.small_lr, schedule=ScheduleConfig(), updates=updates)

    @property
    def fixed(self) -> Arm:
        """No warm-up, the large rate that stays; the paper has none."""
        return self._large(ScheduleConfig())

    @property
    def without(self) -> Arm:
        """The paper's "no warm-up" at the large rate: T = 1 of the coupled schedule."""
        return self._large(coupled(1))

    @property
    def controlled_without(self) -> Arm:
        """No warm-up, and the decay of the run with it."""
        return self._large(controlled(0, self.long_warmup_updates))

    @property
    def long(self) -> Arm:
        """With the paper's long warm-up."""
        return self._large(coupled(self.long_warmup_updates))

    def arms(self) -> list[Arm]:
        return [self.small, self.without, self.long, self.controlled_without, self.fixed]

    def _large(self, schedule: ScheduleConfig) -> Arm:
        return Arm(peak_lr=self.peak_lr, schedule=schedule, updates=self.updates)


SCALES = scales(
    Figure6Config,
    smoke={"small_epochs": 3},
    paper={"peak_lr": PAPER_ADAM_LRS[-1], "small_lr": 1e-4},
)
