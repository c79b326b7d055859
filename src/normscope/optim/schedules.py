"""Learning-rate schedules as pure functions of the update, counted from 1.

Numbers in a placement's formula follow a schedule of their own.
"""

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from ..settings.tables import check_choices

Decay = Literal[
    "constant", "linear", "inverse-sqrt", "steps", "cosine", "wsd", "coupled-inverse-sqrt"
]

WITH_AN_END: tuple[Decay, ...] = ("linear", "cosine", "wsd")
"""The decays that depend on the length of the run."""


def linear_warmup(update: int, *, warmup_updates: int) -> float:
    """Xiong et al. 2020, eq. (1): update / warmup_updates.

    update = 1 -> 1 / warmup_updates (never 0); update >= warmup_updates -> 1; warmup_updates = 0 ->
    1 throughout.
    """
    return min(1.0, update / warmup_updates) if warmup_updates else 1.0


def linear_decay(
    update: int, *, decay_from_updates: int, horizon_updates: int, floor: float
) -> float:
    """1 up to `decay_from_updates`, then a straight line that reaches `floor` one update after the
    horizon.

    With decay_from_updates = 0 and floor = 0: update 1 -> (H) / H = 1; update H -> 1 / H.
    """
    remaining = (horizon_updates + 1 - update) / max(1, horizon_updates - decay_from_updates)
    return floor + (1 - floor) * min(1.0, max(0.0, remaining))


def inverse_sqrt_decay(update: int, *, decay_from_updates: int) -> float:
    """1 up to `decay_from_updates`, then sqrt(decay_from_updates / update)."""
    start = max(1, decay_from_updates)
    return min(1.0, math.sqrt(start / update))


def cosine_decay(
    update: int, *, decay_from_updates: int, horizon_updates: int, floor: float
) -> float:
    """1 up to `decay_from_updates` + 1, then half a cosine to `floor` one update after the
    horizon.
    """
    elapsed = (update - 1 - decay_from_updates) / max(1, horizon_updates - decay_from_updates)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, elapsed))))


def wsd_decay(update: int, *, cooldown_share: float, horizon_updates: int, floor: float) -> float:
    """1 until the last `cooldown_share` of the run, then 1 - √ of the share of it that is over, to
    `floor` one update after the horizon.

    The stable and the decaying part of warm-up, stable, decay (Hu et al. 2024, arXiv:2404.06395,
    section 4), with the decay of Hägele et al. 2024 (arXiv:2405.18392, eq. 2).
    """
    cooldown = max(1.0, cooldown_share * horizon_updates)
    over = (update - 1 - (horizon_updates - cooldown)) / cooldown
    return floor + (1 - floor) * (1 - math.sqrt(min(1.0, max(0.0, over))))


def step_decay(update: int, *, decay_at_updates: tuple[int, ...], decay_factor: float) -> float:
    """Forced decay: multiplied by `decay_factor` after each of `decay_at_updates`."""
    return float(decay_factor ** sum(update > at for at in decay_at_updates))


def coupled_inverse_sqrt(update: int, *, warmup_updates: int) -> float:
    """fairseq's `inverse_sqrt` from a rate of 0: update / W below W updates, sqrt(W / update) from
    then on.

    Raises ValueError for warmup_updates = 0, where it divides by zero (fairseq issue 1341).
    """
    if warmup_updates < 1:
        raise ValueError(
            "coupled-inverse-sqrt has no form without warm-up: its decay is sqrt(warmup_updates / "
            "update). Use "
            'warmup_updates = 1 for what the paper calls "no warm-up", or decay = "inverse-sqrt" '
            "for a decay of its own"
        )
    return (
        update / warmup_updates if update < warmup_updates else math.sqrt(warmup_updates / update)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """The learning rate over updates, as a factor of the optimiser's peak rate."""

    decay: Decay = "constant"
    """constant, linear, inverse-sqrt, steps, cosine or wsd (controlled), or coupled-inverse-sqrt
    (fairseq's).
    """
    warmup_updates: int = 0
    """0 for none."""
    decay_from_updates: int = 0
    """linear, inverse-sqrt, cosine: full rate up to here, whatever the warm-up."""
    decay_at: tuple[int | str, ...] = ()
    """steps: where the rate drops, in updates (8000) or epochs ("8 epochs")."""
    decay_factor: float = 0.1
    """steps: what the rate is multiplied with at each drop."""
    floor: float = 0.0
    """linear, cosine, wsd: the factor at the horizon, which is the length of the run."""
    cooldown_share: float = 0.2
    """wsd: the share of the run, its last part, in which the rate falls."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.warmup_updates < 0 or self.decay_from_updates < 0:
            raise ValueError("warmup_updates and decay_from_updates must be 0 or more")
        if self.decay == "coupled-inverse-sqrt":
            coupled_inverse_sqrt(1, warmup_updates=self.warmup_updates)
        if self.decay == "steps" and not self.decay_at:
            raise ValueError('decay = "steps" needs decay_at, such as decay_at = ["8 epochs"]')
        for at in self.decay_at:
            parse_duration(at)
        if not 0 <= self.floor <= 1 or not 0 < self.decay_factor <= 1:
            raise ValueError("floor must lie in [0, 1] and decay_factor in (0, 1]")
        if not 0 < self.cooldown_share <= 1:
            raise ValueError(
                f"cooldown_share must lie above 0 and not above 1, got {self.cooldown_share}"
            )

    def in_updates(self, updates_of: "UpdatesOf") -> "ScheduleConfig":
        """The same schedule with `decay_at` in updates only."""
        return replace(self, decay_at=tuple(updates_of(at) for at in self.decay_at))


class UpdatesOf:
    """Turns a duration, 600 or "600 updates" or "8 epochs", into updates."""

    def __init__(self, updates_per_epoch: Fraction) -> None:
        self.updates_per_epoch = updates_per_epoch

    def exact(self, duration: int | str) -> Fraction:
        """Updates of a duration, not rounded: an epoch need not be a whole number of them.

        Raises ValueError for anything that is not a positive number of updates or epochs.
        """
        number, unit = parse_duration(duration)
        return number * self.updates_per_epoch if unit == "epochs" else number

    def __call__(self, duration: int | str) -> int:
        """Returns the updates of `exact`, rounded up."""
        return math.ceil(self.exact(duration))


def parse_duration(duration: int | str) -> tuple[Fraction, str]:
    """600 or "600 updates" -> (600, "updates"); "8 epochs" -> (8, "epochs"). Raises ValueError
    otherwise.
    """
    number, _, unit = str(duration).strip().partition(" ")
    unit = unit.strip() or "updates"
    # Plain decimals of a sane length only: Fraction("1e999999999") would compute that number.
    value = (
        Fraction(number) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", number) else Fraction(0)
    )
    unit = {"update": "updates", "epoch": "epochs"}.get(unit, unit)
    if (
        value <= 0
        or unit not in ("updates", "epochs")
        or (unit == "updates" and value.denominator != 1)
    ):
        raise ValueError(
            'a duration is a positive number of updates or epochs, such as 600 or "8 epochs", got '
            f"{duration!r}"
        )
    return value, unit


def factor(schedule: ScheduleConfig, update: int, *, horizon_updates: int) -> float:
    """Returns the factor of the peak rate at `update`, counted from 1, of a run of
    `horizon_updates`.

    `decay_at` must be in updates (`ScheduleConfig.in_updates`). Raises ValueError for update < 1.
    """
    if update < 1:
        raise ValueError(f"updates are counted from 1, got {update}")
    if schedule.decay == "coupled-inverse-sqrt":
        return coupled_inverse_sqrt(update, warmup_updates=schedule.warmup_updates)
    start, floor = schedule.decay_from_updates, schedule.floor
    match schedule.decay:
        case "constant":
            decay = 1.0
        case "linear":
            decay = linear_decay(
                update, decay_from_updates=start, horizon_updates=horizon_updates, floor=floor
            )
        case "inverse-sqrt":
            decay = inverse_sqrt_decay(update, decay_from_updates=start)
        case "cosine":
            decay = cosine_decay(
                update, decay_from_updates=start, horizon_updates=horizon_updates, floor=floor
            )
        case "wsd":
            share = schedule.cooldown_share
            decay = wsd_decay(
                update, cooldown_share=share, horizon_updates=horizon_updates, floor=floor
            )
        case "steps":
            at = tuple(int(a) for a in schedule.decay_at)
            decay = step_decay(update, decay_at_updates=at, decay_factor=schedule.decay_factor)
    return decay * linear_warmup(update, warmup_updates=schedule.warmup_updates)


def depends_on_horizon(schedule: ScheduleConfig) -> bool:
    """True where a longer run has other rates before its end, and so cannot be made of a finished
    shorter one.
    """
    return schedule.decay in WITH_AN_END and schedule.floor < 1


def never_peaks(schedule: ScheduleConfig, *, horizon_updates: int) -> bool:
    """True where the warm-up is longer than the run, so that no update has the rate after the
    warm-up.
    """
    return schedule.warmup_updates > horizon_updates


def summed_factor(schedule: ScheduleConfig, *, updates: int, horizon_updates: int) -> float:
    """Returns the sum of the factor over the first `updates` updates; times the peak rate: its
    cumulative learning rate.
    """
    return math.fsum(
        factor(schedule, u, horizon_updates=horizon_updates) for u in range(1, updates + 1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveConfig:
    """The schedule of a formula's scheduled number, such as `post` of pre-to-post; most placements
    have none.
    """

    start: float = 0.0
    """The value before the first update."""
    end: float = 1.0
    """The value from the end of the schedule on."""
    over: int | str = 4000
    """The duration, in updates (4000) or epochs ("2 epochs")."""
    shape: Literal["linear", "cosine"] = "linear"
    """linear: a straight line; cosine: half a cosine, flat at both ends."""

    def __post_init__(self) -> None:
        check_choices(self)
        parse_duration(self.over)
        for name in ("start", "end"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, got {getattr(self, name)}")

    def in_updates(self, updates_of: UpdatesOf) -> "AdaptiveConfig":
        """The same schedule with `over` in updates."""
        return replace(self, over=updates_of(self.over))


def adaptive_value(schedule: AdaptiveConfig, update: int) -> float:
    """Returns the number at `update`, counted from 1; 0 gives `start`, and `over` and all later
    ones give `end`.

    `over` must be in updates (`AdaptiveConfig.in_updates`). Raises ValueError for update < 0.
    """
    if update < 0:
        raise ValueError(f"updates are counted from 1, and 0 is before the first, got {update}")
    share = min(1.0, update / int(schedule.over))
    if schedule.shape == "cosine":
        share = 0.5 - 0.5 * math.cos(math.pi * share)
    # Exact at both ends whatever they are.
    return (1 - share) * schedule.start + share * schedule.end
