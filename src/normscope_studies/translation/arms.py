"""What differs between the runs of figures 2, 4 and 6."""

from dataclasses import dataclass

from normscope.optim import ScheduleConfig
from normscope.optim.schedules import summed_factor

POST, PRE = "post-ln", "pre-ln"
PLACEMENTS = {POST: "Post-LN", PRE: "Pre-LN"}
OPTIMIZERS = {"adam": "Adam", "sgd": "SGD", "radam": "RAdam"}
DE_EN, EN_DE = "de-en", "en-de"
PAIRS = {DE_EN: "German to English", EN_DE: "English to German"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A configuration that is trained once for each seed."""

    pair: str = DE_EN
    placement: str = POST
    optimizer: str = "adam"
    peak_lr: float
    schedule: ScheduleConfig
    updates: int

    @property
    def name(self) -> str:
        """Safe as a file name."""
        parts = (self.pair, self.placement, self.optimizer, f"lr-{self.peak_lr!r}", _slug(self.schedule))
        return "_".join((*parts, f"updates-{self.updates}"))

    @property
    def title(self) -> str:
        """For a legend; figures of one pair need not name it."""
        placement, optimizer = PLACEMENTS[self.placement], OPTIMIZERS[self.optimizer]
        return f"{placement}, {optimizer} {self.peak_lr:g}, {self.schedule_words}"

    @property
    def schedule_words(self) -> str:
        """Warm-up and decay."""
        schedule = self.schedule
        if schedule.decay == "coupled-inverse-sqrt":
            warm = f"warm-up {schedule.warmup_updates:,}" if schedule.warmup_updates > 1 else "no warm-up"
            return f"{warm}, coupled decay"
        warm = f"warm-up {schedule.warmup_updates:,}" if schedule.warmup_updates else "no warm-up"
        match schedule.decay:
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
        return self.peak_lr * summed_factor(self.schedule, updates=self.updates, horizon_updates=self.updates)


def _slug(schedule: ScheduleConfig) -> str:
    details = {
        "inverse-sqrt": f"-from-{schedule.decay_from_updates}",
        "steps": f"-at-{'-'.join(map(str, schedule.decay_at))}",
    }
    return f"warmup-{schedule.warmup_updates}_{schedule.decay}{details.get(schedule.decay, '')}"
