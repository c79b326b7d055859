"""The differences between the runs of figures 2, 4 and 6: placement, optimiser, rate, schedule.

Xiong et al. 2020 train with fairseq's inverse square root, whose decay begins where the warm-up
ends: without warm-up a hundredth update has a tenth of the rate. So "no warm-up" is also "much less
learning rate". The controlled schedules decay from an update of their own, and two arms hold one of
the two equal while the other changes.
"""

from dataclasses import dataclass
from functools import cache

from normscope.optim import ScheduleConfig
from normscope.optim.schedules import summed_factor

POST, PRE = "post-ln", "pre-ln"
PLACEMENTS = {POST: "Post-LN", PRE: "Pre-LN"}
OPTIMIZERS = {"adam": "Adam", "sgd": "SGD", "radam": "RAdam"}
DE_EN, EN_DE = "de-en", "en-de"
PAIRS = {DE_EN: "German to English", EN_DE: "English to German"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationArm:
    """A configuration that is trained once for each seed."""

    pair: str = DE_EN
    placement: str = POST
    optimizer: str = "adam"
    peak_lr: float
    schedule: ScheduleConfig
    updates: int

    @property
    def folder_name(self) -> str:
        """The folder of the runs that share its text, schedule and length, safe as a file's name; a
        grid distinguishes these.
        """
        schedule, details = self.schedule, ""
        if schedule.decay == "inverse-sqrt":
            details = f"-from-{schedule.decay_from_updates}"
        elif schedule.decay == "steps":
            details = f"-at-{'-'.join(map(str, schedule.decay_at))}"
        return f"{self.pair}_{schedule.decay}{details}_updates-{self.updates}"

    @property
    def title(self) -> str:
        """For a legend; figures of one pair need not name it."""
        placement, optimizer = PLACEMENTS[self.placement], OPTIMIZERS[self.optimizer]
        return f"{placement}, {optimizer} {self.peak_lr:g}, {self.schedule_words}"

    @property
    def schedule_words(self) -> str:
        """Warm-up and decay."""
        schedule = self.schedule
        # The coupled decay is of one update at least: T = 1 is what the paper calls no warm-up.
        least = 1 if schedule.decay == "coupled-inverse-sqrt" else 0
        warm = (
            f"warm-up {schedule.warmup_updates:,}"
            if schedule.warmup_updates > least
            else "no warm-up"
        )
        match schedule.decay:
            case "coupled-inverse-sqrt":
                return f"{warm}, coupled decay"
            case "inverse-sqrt":
                return f"{warm}, decay from {schedule.decay_from_updates:,}"
            case "steps":
                drops = " and ".join(f"{at:,}" for at in schedule.decay_at)
                return f"{warm}, times {schedule.decay_factor:g} after {drops}"
            case "linear":
                return f"{warm}, linear decay"
        return f"{warm}, fixed rate"

    @property
    def summed_lr(self) -> float:
        """The sum of the rate over all updates."""
        return self.peak_lr * _sum(self.schedule, self.updates)


def coupled(warmup_updates: int) -> ScheduleConfig:
    """The paper's: update / T up to T = warmup_updates, then √(T / update). T = 1 is what it calls
    no warm-up.
    """
    return ScheduleConfig(decay="coupled-inverse-sqrt", warmup_updates=warmup_updates)


def controlled(warmup_updates: int, decay_from_updates: int) -> ScheduleConfig:
    """The same decay whatever the warm-up: √(decay_from / update) from there on, and a linear
    warm-up of its own.

    Where the two are one, this is the coupled schedule at every update, and is given as that: it is
    trained once.
    """
    if warmup_updates == decay_from_updates:
        return coupled(warmup_updates)
    return ScheduleConfig(
        decay="inverse-sqrt", warmup_updates=warmup_updates, decay_from_updates=decay_from_updates
    )


@cache
def of_equal_sum(like: ScheduleConfig, updates: int) -> ScheduleConfig:
    """Returns a schedule without warm-up, with the same peak, and about the summed rate of `like`
    over a run: only where the decay begins differs.

    The decay begins at the update that brings the two sums closest, a few thousandths apart at most
    in runs of hundreds of updates. Raises ValueError where `like` has more than a constant rate
    has, or less than a decay from the first update.
    """
    wanted = _sum(like, updates)
    if not _sum(controlled(0, 1), updates) <= wanted <= updates:
        raise ValueError(
            f"no decay without warm-up has the summed rate of {like} over {updates} updates"
        )
    low, high = 1, updates
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if _sum(controlled(0, middle), updates) <= wanted else (low, middle)
        )
    start = min((low, high), key=lambda at: abs(_sum(controlled(0, at), updates) - wanted))
    return controlled(0, start)


def peak_of_equal_sum(
    schedule: ScheduleConfig, like: ScheduleConfig, peak_lr: float, updates: int
) -> float:
    """Returns the peak at which a run on `schedule` has the summed rate of one on `like` with
    `peak_lr`, to six digits.
    """
    return float(f"{peak_lr * _sum(like, updates) / _sum(schedule, updates):.6g}")


def _sum(schedule: ScheduleConfig, updates: int) -> float:
    return summed_factor(schedule, updates=updates, horizon_updates=updates)
