"""What the figures of a comparison draw, read from the events of its runs."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..optim import factor
from ..report.comparison.contents import BlockPlace, Clock, GradientProfile, Name, RunCurve
from ..train.run_folder import Event
from .grid import Cell

_Runs = Sequence[tuple[Cell, Sequence[Event]]]
"""The runs of one configuration, one a seed, each with its events."""
_STACKS = ("encoder", "decoder")
_MONITORED = re.compile(r"normscope/(.+)/block_(\d+)/.+/gradient_norm")
"""As `doctor.monitor` names a sub-layer's gradient."""
_BLOCK = re.compile(r"(.*?)\.?\b(?:blocks?|layers?|h)\.(\d+)\.")
"""The stack and the number of a block in a parameter's name, as models of ours and of others are written."""
_FIRST = "initialisation"
"""The event that holds the gradients before the first update."""


def curve(name: Name, runs: _Runs, kind: str, quantity: str = "nll_nats") -> RunCurve:
    """A quantity of every event of this kind, "update" or "validation", each at its own update."""
    measured = [{e["update"]: e[quantity] for e in events if e["event"] == kind} for _, events in runs]
    updates = sorted(set().union(*measured))
    rows = []
    for points, (_, events) in zip(measured, runs, strict=True):
        # A skipped update is a gap in its row.
        row = [points.get(update, math.nan) for update in updates if update <= max(points, default=0)]
        stopped = next((event["update"] for event in events if event["event"] == "non-finite"), None)
        if stopped is not None:
            row.append(math.nan)
            if len(row) > len(updates):
                updates.append(stopped)
        rows.append(row)
    return RunCurve(name=name, updates=updates, seeds_values=rows)


def clock(name: Name, runs: _Runs) -> Clock | None:
    """How far the runs were after each update, mean over those that made it; None before any has made one."""
    quantities = ("target_tokens", "lr")
    sums: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    epochs: dict[int, float] = {}
    for _, events in runs:
        so_far = [0.0] * len(quantities)
        for event in events:
            if event["event"] != "update" or not {*quantities, "epoch"} <= event.keys():
                continue
            so_far = [total + event[quantity] for total, quantity in zip(so_far, quantities, strict=True)]
            sums[event["update"]].append(tuple(so_far))
            epochs[event["update"]] = event["epoch"]
    updates = sorted(sums)
    if not updates:
        return None
    tokens, rates = ([math.fsum(one[i] for one in sums[u]) / len(sums[u]) for u in updates] for i in range(2))
    return Clock(
        name=name,
        updates=updates,
        target_tokens=[round(total) for total in tokens],
        epochs=[epochs[update] for update in updates],
        summed_lr=rates,
    )


def gradient_profiles(named_runs: Sequence[tuple[Name, _Runs]]) -> list[GradientProfile]:
    """Gradient norm of each block before the first update, of every configuration whose runs have measured it.

    Configurations of one placement that start with the same gradients, as those that differ in their schedule do, share
    a profile.
    """
    by_gradients: dict[tuple[object, ...], tuple[list[Name], list[BlockPlace], list[list[float]]]] = {}
    for name, runs in named_runs:
        squares = [block_squares(e["gradient_norms"]) for _, events in runs for e in events if e["event"] == _FIRST]
        if squares and squares[0]:
            blocks, rows = list(squares[0]), [[math.sqrt(square) for square in one.values()] for one in squares]
            same = (name.group, tuple(blocks), tuple(map(tuple, rows)))
            by_gradients.setdefault(same, ([], blocks, rows))[0].append(name)
    return [GradientProfile(names=n, blocks=blocks, seeds_norms=rows) for n, blocks, rows in by_gradients.values()]


def later_profiles(named_runs: Sequence[tuple[Name, _Runs]]) -> list[GradientProfile]:
    """Gradient norm of each block's matrices at every update that all seeds of a configuration have recorded it at."""
    found = []
    for name, runs in named_runs:
        recorded = [
            {
                event["update"]: squares
                for event in events
                if event["event"] == "monitor" and (squares := _squares(event))
            }
            for _, events in runs
        ]
        for update in sorted(set.intersection(*map(set, recorded)) if recorded else ()):
            blocks = list(recorded[0][update])
            rows = [[math.sqrt(seed[update].get(block, math.nan)) for block in blocks] for seed in recorded]
            found.append(GradientProfile(names=[name], blocks=blocks, seeds_norms=rows, update=update))
    return found


def _squares(event: Event) -> dict[BlockPlace, float]:
    """Squares of the gradient norms of each block's sub-layers, summed, as the monitor has named them."""
    squares: dict[BlockPlace, float] = defaultdict(float)
    for quantity, value in event.items():
        if (found := _MONITORED.fullmatch(quantity)) is not None:
            squares[BlockPlace(found[1], int(found[2]))] += value**2
    return dict(sorted(squares.items(), key=lambda item: (_place(item[0].stack), item[0].number)))


def _place(stack: str) -> tuple[int, str]:
    """Encoders before decoders, and both before stacks of other names."""
    return (_STACKS.index(stack) if stack in _STACKS else len(_STACKS), stack)


def block_squares(norms: Mapping[str, float]) -> dict[BlockPlace, float]:
    """Squares of the gradient norms of each block's parameters, summed, in order of depth."""
    squares: dict[BlockPlace, float] = defaultdict(float)
    for name, norm in norms.items():
        if (found := _BLOCK.match(name)) is not None:
            squares[BlockPlace(found[1], int(found[2]) + 1)] += norm**2
    ordered = sorted(squares, key=lambda block: (_place(block.stack), block.number))
    return {block: squares[block] for block in ordered}


def schedule(name: Name, runs: _Runs) -> RunCurve:
    """The learning rate as it was applied; before anything has run, as it will be."""
    cell, events = runs[0]
    points = [(event["update"], event["lr"]) for event in events if event["event"] == "update"]
    if not points:
        horizon = cell.config.train.duration if isinstance(cell.config.train.duration, int) else 1
        rates = (factor(cell.config.schedule, u, horizon_updates=horizon) for u in range(1, horizon + 1))
        points = [(u, cell.arm.peak_lr * rate) for u, rate in enumerate(rates, 1)]
    updates, values = zip(*points, strict=True)
    return RunCurve(name=name, updates=list(updates), seeds_values=[list(values)])
