"""A schedule as torch has them: an `LRScheduler` for a training loop of one's own."""

from dataclasses import asdict
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from .schedules import WITH_AN_END, ScheduleConfig, factor


class Schedule(LRScheduler):
    """The learning rates of a schedule, as factors of those that the optimiser was made with.

    Call `.step()` after each `optimizer.step()`. torch counts from 0 and sets the first rate when a scheduler is made,
    so the n-th step of the optimiser has the rate of update n: `factor(schedule, n, horizon_updates=…)` of its own.
    """

    def __init__(self, optimizer: Optimizer, schedule: ScheduleConfig, *, horizon_updates: int | None = None) -> None:
        """horizon_updates: the length of the training; linear, cosine and wsd decay need it, others have no use for it.

        Raises ValueError where it is missing or not positive, or where `decay_at` is not in updates.
        """
        if horizon_updates is None and schedule.decay in WITH_AN_END:
            raise ValueError(f"decay = {schedule.decay!r} ends with the training: give horizon_updates")
        if horizon_updates is not None and horizon_updates < 1:
            raise ValueError(f"horizon_updates must be at least 1, got {horizon_updates}")
        if not all(isinstance(at, int) for at in schedule.decay_at):
            raise ValueError(f"decay_at must be numbers of updates here, got {schedule.decay_at}")
        self.schedule, self.horizon_updates = schedule, horizon_updates
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        """Of every parameter group, for the update that comes next."""
        of_peak = factor(self.schedule, self.last_epoch + 1, horizon_updates=self.horizon_updates or 1)
        return [peak * of_peak for peak in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """Plain values only, so that `torch.load(weights_only=True)` reads them."""
        state = super().state_dict()
        return state | {"schedule": self._plain()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ValueError for the state of another schedule."""
        own = {"schedule": self._plain(), "horizon_updates": self.horizon_updates}
        for name, value in own.items():
            if state_dict[name] != value:
                raise ValueError(f"the state is that of another schedule: {name} was {state_dict[name]}, is {value}")
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "schedule"})

    def _plain(self) -> dict[str, Any]:
        return asdict(self.schedule) | {"decay_at": list(self.schedule.decay_at)}
