"""Final loss over the rate, the sensitivity to it, and what trials came to that a comparison was tuned by."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..measure import counted_losses, lr_sensitivity
from ..placement import named
from ..report.comparison.contents import Name, RateCurve, RateSensitivity, SeedResult, Status, TunedArm
from ..report.words import counted, learning_rate, number
from ..train.run_folder import Event
from .grid import Arm, Cell
from .manifest import TRIALS, Manifest, named_cells, read_manifest


@dataclass(frozen=True, slots=True)
class EndedRun:
    """One run of a comparison: where it ended, and what it was configured as and did."""

    arm: Arm
    result: SeedResult
    events: Sequence[Event]

    @property
    def loss_nats(self) -> float:
        """Its last validation loss, at chance where it was stopped early; infinite where it diverged, NaN where it says
        nothing about its peak rate."""
        if self.result.status is Status.NON_FINITE:
            return math.inf
        unfinished = not self.result.status.has_loss or self.result.valid_loss_nats is None
        if unfinished or self.arm.warmup_updates > self.result.updates:
            return math.nan
        return float(self.result.valid_loss_nats or 0.0)

    @property
    def initial_nats(self) -> float:
        """The loss of its first batch, before the first update; NaN where that was not finite."""
        first = (event["nll_nats"] for event in self.events if event["event"] == "update" and event["update"] == 1)
        return float(next(first, math.nan))


def rate_curves(runs: Sequence[EndedRun], names: Mapping[Arm, Name]) -> tuple[list[RateCurve], list[float]]:
    """A curve for each placement, warm-up and optimiser, and the rates that all have; none where there is one rate.

    names: of all configurations, for those who look for the run of a point.
    """
    several_optimizers = len({ran.arm.optimizer for ran in runs}) > 1
    groups: dict[Name, list[EndedRun]] = {}
    for ran in runs:
        variant = ", ".join([ran.arm.warmup_label, *([ran.arm.optimizer] if several_optimizers else [])])
        groups.setdefault(Name(named(ran.arm.placement).title, variant), []).append(ran)
    rates = [{ran.arm.peak_lr for ran in group} for group in groups.values()]
    if max(map(len, rates), default=0) < 2:
        return [], []
    shared = sorted(set.intersection(*rates))
    return [_rate_curve(name, group, shared, names) for name, group in groups.items()], shared


def best_of_each(runs: Sequence[EndedRun]) -> set[Arm]:
    """Of arms that differ in their rate alone, the one with the lowest mean loss; the first where none has ended."""
    losses: dict[tuple[object, ...], dict[Arm, list[float]]] = {}
    for ran in runs:
        arm = ran.arm
        same = losses.setdefault((arm.placement, arm.warmup_updates, arm.optimizer), {})
        same.setdefault(arm, []).append(math.inf if math.isnan(ran.loss_nats) else ran.loss_nats)
    return {min(same, key=lambda arm: math.fsum(same[arm]) / len(same[arm])) for same in losses.values()}


def _rate_curve(name: Name, runs: Sequence[EndedRun], shared: Sequence[float], names: Mapping[Arm, Name]) -> RateCurve:
    rates = sorted({ran.arm.peak_lr for ran in runs})
    seeds = sorted({ran.result.seed for ran in runs})
    at = {(ran.result.seed, ran.arm.peak_lr): ran for ran in runs}
    # Neither rate nor warm-up has had an effect before the first update: all runs of a seed begin with the same loss.
    initial = {
        seed: next(
            (ran.initial_nats for ran in runs if ran.result.seed == seed and ran.initial_nats < math.inf), math.nan
        )
        for seed in seeds
    }
    losses = {key: ran.loss_nats for key, ran in at.items()}
    arms = {ran.arm.peak_lr: ran.arm for ran in runs}
    drawn = {key: _counted(loss, initial[key[0]]) for key, loss in losses.items()}
    found, why_not = _sensitivity(losses, initial, shared)
    return RateCurve(
        name=name,
        peak_lrs=rates,
        seeds=seeds,
        seeds_losses=[[drawn.get((seed, rate), math.nan) for rate in rates] for seed in seeds],
        seeds_replaced=[
            [(key := (seed, rate)) in losses and drawn[key] < losses[key] for rate in rates] for seed in seeds
        ],
        initial_nats=[initial[seed] for seed in seeds],
        sensitivity=found,
        configurations=[names[arms[rate]] for rate in rates],
        summary=_in_words(found, shared) if found else f"no learning-rate sensitivity: {why_not}",
    )


def _counted(loss: float, initial: float) -> float:
    """NaN where the run has not ended, or where what it counts as is not known."""
    return math.nan if math.isnan(loss) or math.isnan(initial) else float(counted_losses([[loss]], [initial])[0, 0])


def _sensitivity(
    losses: Mapping[tuple[int, float], float], initial: Mapping[int, float], shared: Sequence[float]
) -> tuple[RateSensitivity | None, str]:
    """Over the shared rates, of the seeds whose runs have ended at all of them; or why there is none."""
    if len(shared) < 2:
        return None, f"the configurations have {counted(len(shared), 'rate')} in common, and it needs two"
    whole = [seed for seed in initial if not any(math.isnan(losses.get((seed, rate), math.nan)) for rate in shared)]
    if not whole:
        return None, "no seed has a run at every rate that came to its end and reached its peak rate"
    known = [seed for seed in whole if not math.isnan(initial[seed])]
    if not known:
        return None, "no run had a finite loss at initialisation"
    found = lr_sensitivity([[losses[seed, rate] for rate in shared] for seed in known], [initial[s] for s in known])
    return RateSensitivity(
        value=found.value,
        low=found.low,
        high=found.high,
        best_lr=shared[found.best_rate],
        seeds=found.seeds,
        replaced=found.replaced,
    ), ""


def _in_words(found: RateSensitivity, shared: Sequence[float]) -> str:
    spread = "one seed" if found.seeds == 1 else f"{number(found.low)} to {number(found.high)}, {found.seeds} seeds"
    replaced = ""
    if found.replaced:
        verb = "counts" if found.replaced == 1 else "count"
        replaced = f"; {counted(found.replaced, 'run')} {verb} as the loss at initialisation"
    return (
        f"learning-rate sensitivity {number(found.value)} nats per token ({spread}) over {len(shared)} rates from "
        f"{learning_rate(shared[0])} to {learning_rate(shared[-1])}; best at {learning_rate(found.best_lr)}{replaced}"
    )


@dataclass(frozen=True, slots=True)
class TrialRuns:
    """Runs that were trials of a search, and what they depended on."""

    cells: Sequence[Cell]
    search: Mapping[str, Any]
    """As `Manifest.search`."""


@dataclass(frozen=True, slots=True)
class TunedRates:
    """What the trials of a page's runs came to."""

    arms: Sequence[TunedArm] = ()
    best: frozenset[Arm] = frozenset()
    """The configurations that won."""
    curves: Sequence[RateCurve] = ()
    """Loss over the rate; empty where the page shows its own runs over the rate, which are the trials."""


def trials_of(cells: Sequence[Cell], manifest: Manifest) -> list[TrialRuns]:
    """The trials that the runs are, or by which the comparisons that they are of were tuned. Raises UserError."""
    if manifest.search is not None:
        return [TrialRuns(cells, manifest.search)]
    arms = {(cell.arm.placement, cell.arm.warmup_updates, cell.arm.optimizer) for cell in cells}
    found = []
    for folder in dict.fromkeys(cell.beside / TRIALS for cell in cells):
        there = read_manifest(folder)
        if there is not None and there.search is not None:
            trials = named_cells(folder, there.cells)
            own = [one for one in trials if (one.arm.placement, one.arm.warmup_updates, one.arm.optimizer) in arms]
            found.append(TrialRuns(own, there.search))
    return [one for one in found if one.cells]


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


def seeds_of(trials: Sequence[TrialRuns]) -> list[int]:
    """Of all trials, rising."""
    return sorted({cell.seed for one in trials for cell in one.cells})
