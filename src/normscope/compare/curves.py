"""The curves in the figures of a comparison, over updates, depth and rates, read from the events of
its runs.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..measure import counted_losses, lr_sensitivity
from ..optim import factor
from ..placement import named
from ..report.comparison import contents
from ..report.words import counted, short_name
from ..train.record import UPDATE, RunRecord
from ..train.run_folder import Event
from .best_rates import with_best_rate
from .grid import Arm, Cell
from .targets import sensitivity_words

_Runs = Sequence[tuple[Cell, RunRecord]]
"""The runs of one configuration, one a seed, each with its record."""
_STACKS = ("encoder", "decoder")
_MONITORED = re.compile(r"normscope/(.+)/block_(\d{1,9})/.+/gradient_norm", re.ASCII)
"""The name of a sub-layer's gradient as `doctor.monitor` writes it."""
_BLOCK = re.compile(r"(.*?)\.?\b(?:blocks?|layers?|h)\.(\d{1,9})\.", re.ASCII)
"""The stack and the number of a block in a parameter's name, as models of ours and of others are
written.
"""
_MOST_FORESEEN = 1000
"""Updates at which a schedule is drawn that no run has followed yet."""


def curve(
    name: contents.Name, runs: _Runs, kind: str, quantity: str = "nll_nats"
) -> contents.RunCurve:
    """Returns a quantity of every "update" or "validation" event, each at its own update."""
    measured = [_known(record, kind, [UPDATE, quantity]) for _, record in runs]
    union = _union([at for at, _ in measured])
    updates = list(map(int, union))
    rows = []
    for (_, record), (at, values) in zip(runs, measured, strict=True):
        # A skipped update is a gap in its row.
        places = np.searchsorted(union, at)
        filled = np.full(int(places[-1]) + 1 if len(places) else 0, np.nan)
        filled[places] = values
        row: list[float] = filled.tolist()
        if record.stopped_at is not None:
            row.append(math.nan)
            if len(row) > len(updates):
                updates.append(record.stopped_at)
        rows.append(row)
    return contents.RunCurve(name=name, updates=updates, seeds_values=rows)


def _union(several: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Returns all values of several columns, rising, each once."""
    return np.unique(np.concatenate([*several, np.empty(0)]))


def _known(record: RunRecord, kind: str, names: Sequence[str]) -> list[NDArray[np.float64]]:
    """Returns columns of the events that hold all of these quantities."""
    columns = [record.column(kind, name) for name in names]
    known = np.isfinite(columns).all(axis=0)
    return [column[known] for column in columns]


def clock(runs: _Runs) -> dict[str, Sequence[float]]:
    """Returns the other quantities that had gone by after each update, by the names of their axes,
    mean over the runs that made it; empty before any.
    """
    names = (UPDATE, "target_tokens", "lr", "epoch")
    told = [_known(record, "update", names) for _, record in runs]
    updates = _union([update for update, _, _, _ in told])
    seen, rates, epochs = (np.zeros(len(updates)) for _ in range(3))
    made = np.zeros(len(updates))
    for at, tokens, lr, epoch in told:
        places = np.searchsorted(updates, at)
        made[places] += 1
        seen[places] += np.cumsum(tokens)
        rates[places] += np.cumsum(lr)
        epochs[places] = epoch
    columns: dict[str, Sequence[float]] = {
        "update": [int(update) for update in updates],
        "target tokens": [round(tokens) for tokens in (seen / made).tolist()],
        "epoch": epochs.tolist(),
        "cumulative learning rate": (rates / made).tolist(),
    }
    return columns if len(updates) else {}


def gradient_profiles(
    named_runs: Sequence[tuple[contents.Name, _Runs]],
) -> list[contents.GradientProfile]:
    """Returns the gradient norm of each block before the first update, of every configuration whose
    runs have measured it.

    Configurations of one placement that start with the same gradients, as those that differ in
    their schedule do, share a profile.
    """
    by_gradients: dict[
        tuple[object, ...], tuple[list[contents.Name], list[contents.BlockPlace], list[list[float]]]
    ] = {}
    for name, runs in named_runs:
        squares = [
            block_squares(event.get("gradient_norms", {}))
            for _, record in runs
            for event in record.initialisations
        ]
        blocks, rows = _norms(squares)
        if blocks:
            same = (name.group, tuple(blocks), tuple(map(tuple, rows)))
            by_gradients.setdefault(same, ([], blocks, rows))[0].append(name)
    return [
        contents.GradientProfile(names=n, blocks=blocks, seeds_norms=rows)
        for n, blocks, rows in by_gradients.values()
    ]


def _norms(
    seeds: Sequence[Mapping[contents.BlockPlace, float]],
) -> tuple[list[contents.BlockPlace], list[list[float]]]:
    """Returns the blocks of all seeds in order of depth, and a row of norms a seed from their
    squares.

    NaN stands for a block that a seed has not measured, as where its model is another one.
    """
    blocks = _by_depth({block for squares in seeds for block in squares})
    rows = []
    for squares in seeds:
        rows.append([math.sqrt(squares.get(block, math.nan)) for block in blocks])
    return blocks, rows


def _by_depth(blocks: set[contents.BlockPlace]) -> list[contents.BlockPlace]:
    return sorted(blocks, key=lambda block: (_place(block.stack), block.number))


def _recorded_squares(record: RunRecord) -> dict[int, dict[contents.BlockPlace, float]]:
    """Returns the squared gradient norms of a run's blocks, by the update that recorded them."""
    found = {}
    for event in record.monitored:
        squares = _squares(event)
        if squares:
            found[event["update"]] = squares
    return found


def later_profiles(
    named_runs: Sequence[tuple[contents.Name, _Runs]],
) -> list[contents.GradientProfile]:
    """Returns the gradient norm of each block's matrices at every update that all seeds of a
    configuration have recorded it at.
    """
    found = []
    for name, runs in named_runs:
        recorded = [_recorded_squares(record) for _, record in runs]
        for update in sorted(set.intersection(*map(set, recorded)) if recorded else ()):
            blocks, rows = _norms([seed[update] for seed in recorded])
            found.append(
                contents.GradientProfile(
                    names=[name], blocks=blocks, seeds_norms=rows, update=update
                )
            )
    return found


def _squares(event: Event) -> dict[contents.BlockPlace, float]:
    """Returns the squares of the gradient norms of each block's sub-layers, summed, as the monitor
    has named them.
    """
    squares: dict[contents.BlockPlace, float] = defaultdict(float)
    for quantity, value in event.items():
        if (found := _MONITORED.fullmatch(quantity)) is not None:
            squares[contents.BlockPlace(short_name(found[1]), int(found[2]))] += value**2
    return squares


def _place(stack: str) -> tuple[int, str]:
    """Encoders before decoders, and both before stacks of other names."""
    return (_STACKS.index(stack) if stack in _STACKS else len(_STACKS), stack)


def block_squares(norms: Mapping[str, float]) -> dict[contents.BlockPlace, float]:
    """Returns the summed squared gradient norms of each block's parameters, in order of depth."""
    squares: dict[contents.BlockPlace, float] = defaultdict(float)
    for name, norm in norms.items():
        if (found := _BLOCK.match(name)) is not None:
            squares[contents.BlockPlace(short_name(found[1]), int(found[2]) + 1)] += norm**2
    return {block: squares[block] for block in _by_depth(set(squares))}


def schedule(name: contents.Name, runs: _Runs) -> contents.RunCurve:
    """Returns the learning rate as it was applied; before anything has run, as it will be."""
    cell, record = runs[0]
    updates, values = _known(record, "update", [UPDATE, "lr"])
    if not len(updates):
        updates, values = _foreseen(cell)
    return contents.RunCurve(
        name=name, updates=list(map(int, updates)), seeds_values=[values.tolist()]
    )


def _foreseen(cell: Cell) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the schedule of a run that has not begun, of a long one at some of its updates: its
    ends and the peak among them.
    """
    horizon = cell.config.train.duration if isinstance(cell.config.train.duration, int) else 1
    some = np.linspace(1, horizon, min(horizon, _MOST_FORESEEN)).round()
    peak = [max(1, min(horizon, cell.arm.warmup_updates))]
    updates = _union([some, np.array(peak, dtype=np.float64)])
    rates = [
        factor(cell.config.schedule, int(update), horizon_updates=horizon) for update in updates
    ]
    return updates, cell.arm.peak_lr * np.array(rates)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """One run of a comparison: where it ended, and what it was configured as and did."""

    arm: Arm
    result: contents.SeedResult
    record: RunRecord

    @property
    def loss_nats(self) -> float:
        """The last validation loss, at chance where the run was stopped early; infinite where it
        diverged, NaN where it says nothing about its peak rate.
        """
        if self.result.status is contents.Status.NON_FINITE:
            return math.inf
        unfinished = not self.result.status.has_loss or self.result.valid_loss_nats is None
        if unfinished or self.arm.warmup_updates > self.result.updates:
            return math.nan
        return float(self.result.valid_loss_nats or 0.0)

    @property
    def initial_nats(self) -> float:
        """The loss of its first batch, before the first update; NaN where that was not finite."""
        return self.record.first_nats


def rate_curves(
    runs: Sequence[EndedRun], names: Mapping[Arm, contents.Name], unit: str = "nats per token"
) -> tuple[list[contents.RateCurve], list[float]]:
    """Returns a curve for each placement, warm-up and optimiser, and the rates that all have; none
    where there is one rate.

    names: of all configurations, for those who look for the run of a point. unit: of losses.
    """
    several_optimizers = len({ran.arm.optimizer for ran in runs}) > 1
    groups: dict[contents.Name, list[EndedRun]] = {}
    for ran in runs:
        variant = ran.arm.warmup_label
        if several_optimizers:
            variant += f", {ran.arm.optimizer}"
        groups.setdefault(contents.Name(named(ran.arm.placement).title, variant), []).append(ran)
    rates = []
    for group in groups.values():
        rates.append({ran.arm.peak_lr for ran in group})
    if max(map(len, rates), default=0) < 2:
        return [], []
    shared = sorted(set.intersection(*rates))
    curves = [_rate_curve(name, group, shared, names, unit) for name, group in groups.items()]
    return curves, shared


def best_of_each(runs: Sequence[EndedRun]) -> set[Arm]:
    """Returns, of arms that differ in their rate alone, the one with the lowest mean loss; the
    first where none has ended.
    """
    losses = _mean_losses(runs)
    best: dict[tuple[object, ...], Arm] = {}
    for arm in sorted(losses, key=losses.__getitem__):
        best.setdefault((arm.placement, arm.warmup_updates, arm.optimizer), arm)
    return set(best.values())


def lowest(runs: Sequence[EndedRun], most: int) -> set[Arm]:
    """Returns the arms with the lowest mean losses, so many at most."""
    losses = _mean_losses(runs)
    return set(sorted(losses, key=losses.__getitem__)[:most])


def _mean_losses(runs: Sequence[EndedRun]) -> dict[Arm, float]:
    losses: dict[Arm, list[float]] = {}
    for ran in runs:
        losses.setdefault(ran.arm, []).append(
            math.inf if math.isnan(ran.loss_nats) else ran.loss_nats
        )
    return {arm: math.fsum(some) / len(some) for arm, some in losses.items()}


def _rate_curve(
    name: contents.Name,
    runs: Sequence[EndedRun],
    shared: Sequence[float],
    names: Mapping[Arm, contents.Name],
    unit: str,
) -> contents.RateCurve:
    rates = sorted({ran.arm.peak_lr for ran in runs})
    seeds = sorted({ran.result.seed for ran in runs})
    at = {(ran.result.seed, ran.arm.peak_lr): ran for ran in runs}
    # Neither rate nor warm-up has had an effect before the first update: all runs of a seed begin
    # with the same loss.
    initial = dict.fromkeys(seeds, math.nan)
    for ran in runs:
        if math.isnan(initial[ran.result.seed]):
            initial[ran.result.seed] = ran.initial_nats
    losses = {key: ran.loss_nats for key, ran in at.items()}
    arms = {ran.arm.peak_lr: ran.arm for ran in runs}
    drawn = {key: _counted(loss, initial[key[0]]) for key, loss in losses.items()}
    found, why_not = _sensitivity(losses, initial, shared)
    seeds_losses = []
    seeds_replaced = []
    for seed in seeds:
        seeds_losses.append([drawn.get((seed, rate), math.nan) for rate in rates])
        ended = {rate: losses.get((seed, rate)) for rate in rates}
        seeds_replaced.append(
            [loss is not None and drawn[seed, rate] < loss for rate, loss in ended.items()]
        )
    of_rates = contents.RateCurve(
        name=name,
        peak_lrs=rates,
        seeds=seeds,
        seeds_losses=seeds_losses,
        seeds_replaced=seeds_replaced,
        initial_nats=[initial[seed] for seed in seeds],
        sensitivity=found,
        configurations=[names[arms[rate]] for rate in rates],
        summary=sensitivity_words(found, shared, unit)
        if found
        else f"no learning-rate sensitivity: {why_not}",
    )
    return with_best_rate(of_rates, drawn)


def _counted(loss: float, initial: float) -> float:
    """NaN where the run has not ended, or where what it counts as is not known."""
    return (
        math.nan
        if math.isnan(loss) or math.isnan(initial)
        else float(counted_losses([[loss]], [initial])[0, 0])
    )


def _sensitivity(
    losses: Mapping[tuple[int, float], float], initial: Mapping[int, float], shared: Sequence[float]
) -> tuple[contents.RateSensitivity | None, str]:
    """Computes the sensitivity over the shared rates, for the seeds whose runs have ended at all of
    them; or returns the reason why there is none.
    """
    if len(shared) < 2:
        return (
            None,
            f"the configurations have {counted(len(shared), 'rate')} in common, and it needs two",
        )
    whole = []
    for seed in initial:
        found_losses = [losses.get((seed, rate), math.nan) for rate in shared]
        if not any(map(math.isnan, found_losses)):
            whole.append(seed)
    if not whole:
        return (
            None,
            "no seed has a run at every rate that came to its end and reached its peak rate",
        )
    known = [seed for seed in whole if not math.isnan(initial[seed])]
    if not known:
        return None, "no run had a finite loss at initialisation"
    rows = []
    for seed in known:
        rows.append([losses[seed, rate] for rate in shared])
    found = lr_sensitivity(rows, [initial[seed] for seed in known])
    return contents.RateSensitivity(
        value=found.value,
        low=found.low,
        high=found.high,
        best_lr=shared[found.best_rate],
        seeds=found.seeds,
        replaced=found.replaced,
    ), ""
