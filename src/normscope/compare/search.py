"""What is tuned, over which range and by how many trials, and what the trials came to.

The same settings give the same trials.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..adapters.optuna import Axis, ListAxis, LogAxis
from ..errors import UserError, option
from ..placement import named
from ..report.comparison.contents import Name, RateCurve, TunedArm
from ..report.words import counted, learning_rate, number
from ..tasks.run_config import RunConfig
from ..train import StopRule
from .curves import EndedRun
from .grid import Arm, Cell
from .manifest import TRIALS, Manifest, named_cells, read_manifest

STARTS = 5
"""Trials that come first: both ends of the range, and three rates between them at equal steps in the logarithm."""
SEED_OFFSET = 1000
"""From the seed of the configuration to that of all trials: the runs that are compared have not chosen the rate."""
_NARROWEST = 2.0
"""Between the ends of a range: within such a factor, losses differ by less than seeds do."""
_AROUND = 10.0
"""From the rate that a configuration has to either end of the range, where none is given."""
_DIGITS = 3
"""Significant digits of a rate: what is written is what is trained."""
_ALL_DIGITS = 17
"""By which any float is told from the others."""


@dataclass(frozen=True, slots=True, order=True)
class OpenArm:
    """A configuration whose peak rate is still open, and its warm-up too where it has several."""

    placement: str
    warmups_updates: tuple[int, ...]
    optimizer: str

    @property
    def name(self) -> str:
        """Safe as a file name."""
        return f"{self.placement}_warmup-{'-'.join(map(str, self.warmups_updates))}_{self.optimizer}"

    def at(self, peak_lr: float, warmup_updates: int) -> Arm:
        """The configuration that it becomes."""
        return Arm(self.placement, warmup_updates, peak_lr, self.optimizer)

    def has(self, arm: Arm) -> bool:
        """Whether it becomes this configuration at its rate and warm-up."""
        return (arm.placement, arm.optimizer) == (self.placement, self.optimizer) and (
            arm.warmup_updates in self.warmups_updates
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A search within each arm. Raises UserError for what cannot be searched."""

    trials: int
    """Of each arm."""
    low: float
    high: float
    """The ends of the range of peak rates."""
    together: int = 1
    """Trials of an arm that are asked for at once, without the losses of one another."""

    def __post_init__(self) -> None:
        if not (self.low > 0 and self.low * _NARROWEST <= self.high < math.inf):
            raise UserError(
                f"a range of peak rates rises from a number above 0 by a factor of at least {_NARROWEST:g}, as "
                f"3e-4:3e-2 does; got {self.low:g}:{self.high:g}"
            )
        if self.together < 1:
            raise UserError(f"{option('trials_together')} must be at least 1, got {self.together}")
        further = self.trials - STARTS
        if further < 0:
            raise UserError(
                f"{option('trials')} must be at least {STARTS}, got {self.trials}: both ends of the range and three "
                "rates between them come first"
            )
        if further % self.together:
            near = [STARTS + step * self.together for step in (further // self.together, further // self.together + 1)]
            raise UserError(
                f"after the first {STARTS} trials come {self.together} at a time, so that {option('trials')} may be "
                f"{near[0]} or {near[1]}, and not {self.trials}"
            )

    def rounds(self) -> Iterator[range]:
        """Numbers of the trials of an arm that are asked for at once. More trials add rounds and change none."""
        yield range(STARTS)
        for first in range(STARTS, self.trials, self.together):
            yield range(first, first + self.together)

    def starts(self, arm: OpenArm) -> list[dict[str, float]]:
        """The points of the first trials of an arm; of several warm-ups each has about as many."""
        return [
            {"peak_lr": rate, "warmup_updates": arm.warmups_updates[i % len(arm.warmups_updates)]}
            for i, rate in enumerate(self.start_rates())
        ]

    def start_rates(self) -> list[float]:
        """Rising, with the ends as they were given."""
        factor = (self.high / self.low) ** (1 / (STARTS - 1))
        between = [rounded(self.low * factor**step) for step in range(1, STARTS - 1)]
        return [self.low, *between, self.high]

    def axes(self, arm: OpenArm) -> dict[str, Axis]:
        """What is searched; a single warm-up is not."""
        warmups = {"warmup_updates": ListAxis(arm.warmups_updates)} if len(arm.warmups_updates) > 1 else {}
        return {"peak_lr": LogAxis(self.low, self.high), **warmups}

    def record(self, base: RunConfig, arms: Sequence[OpenArm], stop_when: StopRule | None) -> dict[str, Any]:
        """What the trials of a folder depend on beside their configuration, apart from how many there are."""
        searched = [list(arm.warmups_updates) for arm in arms if len(arm.warmups_updates) > 1]
        return {
            "low": self.low,
            "high": self.high,
            "together": self.together,
            "seed": base.seed,
            "duration": base.train.duration,
            "stop_when": None if stop_when is None else str(stop_when),
            "warmups_updates": searched[0] if searched else None,
        }


def rounded(rate: float, among: Sequence[float] = ()) -> float:
    """To as few digits as tell it from the others, and at least three: it is written in names and tables."""
    written = [float(f"{rate:.{digits - 1}e}") for digits in range(_DIGITS, _ALL_DIGITS + 1)]
    return next((found for found in written if found not in among), rate)


def asked_tuning(
    tune: str | None, ends: Sequence[float] | None, trials: int | None, together: int, *, centre: float
) -> Tuning | None:
    """The search that the options of a comparison ask for; None where they ask for none. Raises UserError.

    ends: of the range, None for a factor of ten either side of `centre`.
    """
    if tune is None:
        if trials is not None or together > 1:
            raise UserError(
                f"{option('trials')} and {option('trials_together')} are for {option('tune', 'peak_lr')}; leave them "
                "out, or give it"
            )
        return None
    if tune != "peak_lr":
        raise UserError(f"{option('tune')} takes peak_lr, the setting that it can tune, got {tune!r}")
    if trials is None:
        raise UserError(f"say with {option('trials')} how many trials each arm has, such as {option('trials', 8)}")
    if ends is not None and len(ends) != 2:
        raise UserError(
            f"where rates are searched, {option('peak_lr')} gives the two ends of a range, got {list(ends)}"
        )
    low, high = (rounded(centre / _AROUND), rounded(centre * _AROUND)) if ends is None else ends
    return Tuning(trials=trials, low=low, high=high, together=together)


_TrialRuns = tuple[Sequence[Cell], Mapping[str, Any]]
"""Runs that were trials of a search, and what they depended on, as `Manifest.search` has it."""


@dataclass(frozen=True, slots=True)
class TunedRates:
    """What the trials of a page's runs came to."""

    arms: Sequence[TunedArm] = ()
    best: frozenset[Arm] = frozenset()
    """The configurations that won."""
    curves: Sequence[RateCurve] = ()
    """Loss over the rate; empty where the page shows its own runs over the rate, which are the trials."""


def trials_of(cells: Sequence[Cell], manifest: Manifest) -> list[_TrialRuns]:
    """The trials that the runs are, or by which the comparisons that they are of were tuned. Raises UserError."""
    if manifest.search is not None:
        return [(cells, manifest.search)]
    arms = {(cell.arm.placement, cell.arm.warmup_updates, cell.arm.optimizer) for cell in cells}
    found = list[_TrialRuns]()
    for folder in dict.fromkeys(cell.beside / TRIALS for cell in cells):
        there = read_manifest(folder)
        if there is not None and there.search is not None:
            trials = named_cells(folder, there.cells)
            own = [one for one in trials if (one.arm.placement, one.arm.warmup_updates, one.arm.optimizer) in arms]
            found.append((own, there.search))
    return [one for one in found if one[0]]


def tuned(ran: Sequence[EndedRun], search: Mapping[str, Any]) -> Iterator[tuple[TunedArm, Arm]]:
    """Each arm that the trials are of, with the configuration that won; none of whose trials none is over."""
    several_optimizers = len({one.arm.optimizer for one in ran}) > 1
    warmups_too = bool(search.get("warmups_updates"))
    groups: dict[Name, list[EndedRun]] = {}
    for one in ran:
        words = [] if warmups_too else [one.arm.warmup_label]
        words += [one.arm.optimizer] if several_optimizers else []
        groups.setdefault(Name(named(one.arm.placement).title, ", ".join(words)), []).append(one)
    for name, group in groups.items():
        over = [one for one in group if not math.isnan(one.loss_nats)]
        if over:
            best = min(over, key=lambda one: (one.loss_nats, one.arm.peak_lr))
            yield _tuned_arm(name, over, best, search, warmups_too=warmups_too), best.arm


def _tuned_arm(
    name: Name, over: Sequence[EndedRun], best: EndedRun, search: Mapping[str, Any], *, warmups_too: bool
) -> TunedArm:
    rates = [one.arm.peak_lr for one in over]
    rate, loss = best.arm.peak_lr, best.loss_nats
    beyond = "higher" if rate == max(rates) else "lower" if rate == min(rates) else ""
    low, high = float(search["low"]), float(search["high"])
    trials = f"{counted(len(over), 'trial')} from {learning_rate(low)} to {learning_rate(high)}"
    at = learning_rate(rate) + (f" and {best.arm.warmup_label}" if warmups_too else "")
    if math.isinf(loss):
        words, beyond = f"{name}: none of {trials} stayed finite", "lower"
    else:
        words = f"{name}: the best of {trials} is {at}, with {number(loss)} nats per token"
    if beyond:
        end = "lowest" if beyond == "lower" else "highest"
        words += f"; it is the {end} that was tried, and a {beyond} one may be better" if not math.isinf(loss) else ""
    return TunedArm(
        name=name,
        trials=len(over),
        low=low,
        high=high,
        peak_lr=rate,
        warmup_updates=best.arm.warmup_updates,
        loss_nats=loss,
        beyond=beyond,
        summary=words,
    )


def seeds_of(trials: Sequence[_TrialRuns]) -> list[int]:
    """Of all trials, rising."""
    return sorted({cell.seed for cells, _ in trials for cell in cells})
