"""The two families of schedules: the paper's, coupled to the warm-up, and the controlled ones, which are not.

Xiong et al. 2020 train with fairseq's inverse square root, whose decay begins where the warm-up ends: without warm-up a
hundredth update has a tenth of the rate. So "no warm-up" is also "much less learning rate". The controlled family
decays from an update of its own, and two of its arms hold one of the two equal while the other changes.
"""

from functools import cache

from normscope.optim import ScheduleConfig
from normscope.optim.schedules import summed_factor


def coupled(warmup_updates: int) -> ScheduleConfig:
    """The paper's: update / T up to T = warmup_updates, then √(T / update). T = 1 is what it calls no warm-up."""
    return ScheduleConfig(decay="coupled-inverse-sqrt", warmup_updates=warmup_updates)


def controlled(warmup_updates: int, decay_from_updates: int) -> ScheduleConfig:
    """The same decay whatever the warm-up: √(decay_from / update) from there on, and a linear warm-up of its own.

    Where the two are one, this is the coupled schedule at every update, and is given as that: it is trained once.
    """
    if warmup_updates == decay_from_updates:
        return coupled(warmup_updates)
    return ScheduleConfig(decay="inverse-sqrt", warmup_updates=warmup_updates, decay_from_updates=decay_from_updates)


@cache
def of_equal_sum(like: ScheduleConfig, updates: int) -> ScheduleConfig:
    """No warm-up, the same peak, and about the summed rate of `like` over a run: only where the decay begins differs.

    The decay begins at the update that brings the two sums closest, a few thousandths apart at most in runs of hundreds
    of updates. Raises ValueError where `like` has more than a constant rate has, or less than a decay from the first
    update.
    """
    wanted = _sum(like, updates)
    if not _sum(controlled(0, 1), updates) <= wanted <= updates:
        raise ValueError(f"no decay without warm-up has the summed rate of {like} over {updates} updates")
    low, high = 1, updates
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _sum(controlled(0, middle), updates) <= wanted else (low, middle)
    start = min((low, high), key=lambda at: abs(_sum(controlled(0, at), updates) - wanted))
    return controlled(0, start)


def peak_of_equal_sum(schedule: ScheduleConfig, like: ScheduleConfig, peak_lr: float, updates: int) -> float:
    """The peak at which a run on `schedule` has the summed rate of one on `like` with `peak_lr`, to six digits."""
    return float(f"{peak_lr * _sum(like, updates) / _sum(schedule, updates):.6g}")


def _sum(schedule: ScheduleConfig, updates: int) -> float:
    return summed_factor(schedule, updates=updates, horizon_updates=updates)
