"""What the figures of a comparison draw, read from the events of its runs."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ....optim import factor
from ....report.comparison.contents import Block, Curve, GradientProfile, Name
from ....train.run_folder import Event
from ..grid import Cell

Runs = Sequence[tuple[Cell, Sequence[Event]]]
"""The runs of one configuration, one a seed, each with its events."""
_STACKS = ("encoder", "decoder")
_FIRST = "initialisation"
"""The event that holds the gradients before the first update."""


def curve(name: Name, runs: Runs, kind: str, quantity: str = "nll_nats") -> Curve:
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
    return Curve(name=name, updates=updates, seeds_values=rows)


def gradient_profiles(named_runs: Sequence[tuple[Name, Runs]]) -> list[GradientProfile]:
    """Gradient norm of each block before the first update, of every configuration whose runs have measured it.

    Configurations of one placement that start with the same gradients, as those that differ in their schedule do, share
    a profile.
    """
    by_gradients: dict[tuple[object, ...], tuple[list[Name], list[Block], list[list[float]]]] = {}
    for name, runs in named_runs:
        squares = [block_squares(e["gradient_norms"]) for _, events in runs for e in events if e["event"] == _FIRST]
        if squares:
            blocks, rows = list(squares[0]), [[math.sqrt(square) for square in one.values()] for one in squares]
            same = (name.group, tuple(blocks), tuple(map(tuple, rows)))
            by_gradients.setdefault(same, ([], blocks, rows))[0].append(name)
    return [GradientProfile(names=n, blocks=blocks, seeds_norms=rows) for n, blocks, rows in by_gradients.values()]


def block_squares(norms: Mapping[str, float]) -> dict[Block, float]:
    """Squares of the gradient norms of each block's parameters, summed, in order of depth."""
    squares: dict[Block, float] = defaultdict(float)
    for name, norm in norms.items():
        stack, *rest = name.split(".")
        if rest[:1] == ["blocks"]:
            squares[Block(stack, int(rest[1]) + 1)] += norm**2
    ordered = sorted(squares, key=lambda block: (_STACKS.index(block.stack), block.number))
    return {block: squares[block] for block in ordered}


def schedule(name: Name, runs: Runs) -> Curve:
    """The learning rate as it was applied; before anything has run, as it will be."""
    cell, events = runs[0]
    points = [(event["update"], event["lr"]) for event in events if event["event"] == "update"]
    if not points:
        horizon = cell.config.train.duration if isinstance(cell.config.train.duration, int) else 1
        rates = (factor(cell.config.schedule, u, horizon_updates=horizon) for u in range(1, horizon + 1))
        points = [(u, cell.arm.peak_lr * rate) for u, rate in enumerate(rates, 1)]
    updates, values = zip(*points, strict=True)
    return Curve(name=name, updates=list(updates), seeds_values=[list(values)])
