"""The rates that a scheduler of torch's gives, one after another, without a training.

A copy of it is stepped over groups of its own: the user's scheduler and optimiser are read alone.
"""

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

UPDATES = 10_000
"""The number of updates that are examined: longer than nearly every warm-up."""


class _Groups:
    """The part of an optimiser that a scheduler sees: its groups, without their weights."""

    def __init__(self, groups: Sequence[dict[str, Any]]) -> None:
        self.param_groups = [dict(group, params=[]) for group in groups]
        self.defaults: dict[str, Any] = {}
        self.state: dict[Any, Any] = {}
        self._opt_called = True

    def step(self) -> None:
        """Does nothing: no rate depends on what an update does."""

    # torch warns of an optimiser whose step its scheduler has not wrapped.
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCourse:
    """The rates of the first updates."""

    kind: str
    """The scheduler's class."""
    rates: tuple[float, ...]
    """The largest of all groups, before each update from the first; as many as the scheduler
    gives, at most `UPDATES`."""
    peaks: tuple[float, ...]
    """The largest rate of each group."""

    @property
    def peak(self) -> float:
        """The largest rate."""
        return max(self.rates)

    @property
    def warmup_updates(self) -> int:
        """The number of updates before the first one at the peak, within a thousandth of it."""
        return next(n for n, rate in enumerate(self.rates) if rate >= self.peak * (1 - 1e-3))

    @property
    def negative_from(self) -> int | None:
        """The first update, counted from 1, whose rate is below 0."""
        return next((n for n, rate in enumerate(self.rates, 1) if rate < 0), None)


def course_of(scheduler: LRScheduler, optimizer: Optimizer) -> RateCourse:
    """Returns the rates that a scheduler gives from where it stands.

    Raises ValueError where it cannot be copied or stepped by itself, as one that waits for a loss.
    """
    groups = _Groups(optimizer.param_groups)
    owners = {id(optimizer): groups, id(scheduler.optimizer): groups}
    try:
        twin = copy.deepcopy(scheduler, owners)
        rates, by_group = _stepped(twin, groups)
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(f"the scheduler cannot be stepped by itself ({kind}: {error})") from error
    if not all(map(math.isfinite, rates)):
        raise ValueError("the scheduler gives a rate that is not finite")
    return RateCourse(
        kind=type(scheduler).__name__, rates=tuple(rates), peaks=tuple(map(max, by_group))
    )


def _stepped(scheduler: LRScheduler, groups: _Groups) -> tuple[list[float], list[list[float]]]:
    by_group: list[list[float]] = [[] for _ in groups.param_groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for update in range(UPDATES):
            for rates, group in zip(by_group, groups.param_groups, strict=True):
                rates.append(float(group["lr"]))
            try:
                scheduler.step()
            except ValueError:
                # One of a fixed length, as OneCycleLR, ends; one that waits for a loss never began.
                if not update:
                    raise
                break
    return [max(rates) for rates in zip(*by_group, strict=True)], by_group
