"""The work of a report grows as what it shows: twice as many updates or runs are at most about
twice the work.

It is counted in steps at a size, twice it and four times it. What every report takes falls out of
the differences between these; of the two differences the second is twice the first where work grows
in proportion, and four times where it grows with the square.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counting import counted
from normscope.compare.grid import Grid
from normscope.compare.manifest import about
from normscope.compare.page import compare, read, results
from normscope.data.opening import toy_corpus
from normscope.report.comparison.explore import explorer
from normscope.report.explorer import encoded
from tiny import tiny, write_events

MOST = 2.5
"""Between n log n and the square."""


def second_over_first(steps: Callable[[int], int], size: int) -> float:
    """By how much the work grows more on the way from twice the size to four times it."""
    one, two, four = (steps(size * times) for times in (1, 2, 4))
    return (four - two) / (two - one)


def events(updates: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"event": "initialisation", "update": 0, "gradient_norms": {"encoder.blocks.0.w": 0.5}}
    ]
    for update in range(1, updates + 1):
        numbers = {"nll_nats": 2 + 4 / update, "gradient_norm": 1 / update, "lr": 1e-3}
        clock = {"target_tokens": 128, "epoch": update / 50}
        found.append({"event": "update", "update": update} | numbers | clock)
        if update % 10 == 0:
            found.append({"event": "validation", "update": update, "nll_nats": 2 + 4 / update})
    return [*found, {"event": "finished", "update": updates}]


def grid(arms: int, seeds: int) -> Grid:
    pairs = tuple(("pre-ln", warmup) for warmup in range(arms))
    return Grid(placements_and_warmups=pairs, peak_lrs=(1e-3,), optimizers=("adam",), seeds=seeds)


def test_twice_the_updates_are_twice_the_work(tmp_path: Path) -> None:
    def steps(updates: int) -> int:
        folder = tmp_path / str(updates)
        cells = grid(1, 2).cells(tiny(f"train.duration={updates}"), folder)
        for cell in cells:
            write_events(cell.folder, events(updates))
        manifest = about(cells[0].config, toy_corpus(5)).grown("T", "C", cells)
        with counted() as found:
            compare(cells, manifest, folder)
        return found.count

    assert second_over_first(steps, 500) < MOST


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("axis", ["arms", "seeds"])
def test_twice_the_runs_are_twice_the_work(axis: str, tmp_path: Path) -> None:
    def steps(runs: int) -> int:
        folder = tmp_path / str(runs)
        made = grid(runs, 1) if axis == "arms" else grid(1, runs)
        cells = made.cells(tiny("train.duration=20"), folder)
        for cell in cells:
            write_events(cell.folder, events(20))
        manifest = about(cells[0].config, toy_corpus(5)).grown("T", "C", cells)
        with counted() as found:
            page = read(cells, manifest)
            results(page)
            encoded(explorer(page))
        return found.count

    assert second_over_first(steps, 10) < MOST
