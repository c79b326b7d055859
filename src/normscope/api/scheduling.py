"""A learning-rate schedule for a training loop of the caller's own."""

from collections.abc import Sequence

from torch.optim import Optimizer

from ..optim import Schedule, ScheduleConfig
from ..optim.schedules import Decay


def schedule(
    optimizer: Optimizer,
    *,
    decay: Decay = "constant",
    warmup_updates: int = 0,
    horizon_updates: int | None = None,
    decay_from_updates: int = 0,
    decay_at: Sequence[int] = (),
    decay_factor: float = 0.1,
    floor: float = 0.0,
    cooldown_share: float = 0.2,
) -> Schedule:
    """The optimiser's rates as peak rates, with a warm-up and a decay: a `torch.optim.lr_scheduler.LRScheduler`.

    Call `.step()` after each `optimizer.step()`; update n then has the rate that a run of NormScope has at update n.
    horizon_updates: the length of the training, which linear, cosine and wsd decay need. The other settings are those
    of `ScheduleConfig`. Raises ValueError for a decay that there is not, or settings that do not go together.
    """
    config = ScheduleConfig(
        decay=decay,
        warmup_updates=warmup_updates,
        decay_from_updates=decay_from_updates,
        decay_at=tuple(decay_at),
        decay_factor=decay_factor,
        floor=floor,
        cooldown_share=cooldown_share,
    )
    return Schedule(optimizer, config, horizon_updates=horizon_updates)
