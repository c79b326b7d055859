"""What the trials came to that a comparison was tuned by: which rate won, of how many, and whether at an end."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...placement import named
from ...report.comparison.contents import Name, RateCurve, TunedArm
from ...report.words import counted, learning_rate, number
from ..grid import Arm, Cell
from ..manifest import TRIALS, Manifest, named_cells, read_manifest
from .rates import Ran


@dataclass(frozen=True, slots=True)
class Trials:
    """Runs that were trials of a search, and what they depended on."""

    cells: Sequence[Cell]
    search: Mapping[str, Any]
    """As `Manifest.search`."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What the trials of a page's runs came to."""

    arms: Sequence[TunedArm] = ()
    best: frozenset[Arm] = frozenset()
    """The configurations that won."""
    curves: Sequence[RateCurve] = ()
    """Loss over the rate; empty where the page shows its own runs over the rate, which are the trials."""


def trials_of(cells: Sequence[Cell], manifest: Manifest) -> list[Trials]:
    """The trials that the runs are, or by which the comparisons that they are of were tuned. Raises UserError."""
    if manifest.search is not None:
        return [Trials(cells, manifest.search)]
    arms = {(cell.arm.placement, cell.arm.warmup_updates, cell.arm.optimizer) for cell in cells}
    found = []
    for folder in dict.fromkeys(cell.folder.path.parents[1] / TRIALS for cell in cells):
        there = read_manifest(folder)
        if there is not None and there.search is not None:
            trials = named_cells(folder, there.cells)
            own = [one for one in trials if (one.arm.placement, one.arm.warmup_updates, one.arm.optimizer) in arms]
            found.append(Trials(own, there.search))
    return [one for one in found if one.cells]


def tuned(ran: Sequence[Ran], search: Mapping[str, Any]) -> Iterator[tuple[TunedArm, Arm]]:
    """Each arm that the trials are of, with the configuration that won; none of whose trials none is over."""
    several_optimizers = len({one.arm.optimizer for one in ran}) > 1
    warmups_too = bool(search.get("warmups_updates"))
    groups: dict[Name, list[Ran]] = {}
    for one in ran:
        words = [] if warmups_too else [one.arm.warmup_label]
        words += [one.arm.optimizer] if several_optimizers else []
        groups.setdefault(Name(named(one.arm.placement).title, ", ".join(words)), []).append(one)
    for name, group in groups.items():
        over = [one for one in group if not math.isnan(one.loss_nats)]
        if over:
            best = min(over, key=lambda one: (one.loss_nats, one.arm.peak_lr))
            yield _tuned(name, over, best, search, warmups_too=warmups_too), best.arm


def _tuned(name: Name, over: Sequence[Ran], best: Ran, search: Mapping[str, Any], *, warmups_too: bool) -> TunedArm:
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


def seeds_of(trials: Sequence[Trials]) -> list[int]:
    """Of all trials, rising."""
    return sorted({cell.seed for one in trials for cell in one.cells})
