"""What a sweep is said to take before it begins, and the run that is refused because it cannot
fit."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from normscope.compare import compare as comparing, cost
from normscope.compare.compare import run_comparison
from normscope.compare.cost import Room, room_on, sweep_cost
from normscope.compare.grid import Cell, Grid
from normscope.compare.pool import PoolOptions
from normscope.errors import UserError
from normscope.runs.machine import plan
from tiny import tiny, write_events

LONG = "train.duration=1000000"


def cells(
    folder: Path, *settings: str, optimizers: tuple[str, ...] = ("adam",), seeds: int = 2
) -> list[Cell]:
    grid = Grid(
        placements_and_warmups=(("post-ln", 0), ("pre-ln", 0)),
        peak_lrs=(1e-3,),
        optimizers=optimizers,
        seeds=seeds,
    )
    return grid.cells(tiny(*settings), folder)


@pytest.fixture
def gpu() -> Callable[..., Room]:
    def make(memory_bytes: int, **changes: Any) -> Room:
        given = {"memory_bytes": memory_bytes, "share": 1.0, "together": 1, "name": "a GPU"}
        return Room(**{**given, **changes})

    return make


def test_operations_are_those_of_all_updates_to_come_and_memory_that_of_the_largest_run(
    tmp_path: Path, gpu: Callable[..., Room]
) -> None:
    made = cells(tmp_path, optimizers=("adam", "sgd"), seeds=1)
    plans = {cell.name: plan(cell.config) for cell in made}
    left = [(cell, 10 + number) for number, cell in enumerate(made)]
    together = sum(plans[cell.name].flops_per_update * updates for cell, updates in left)
    most = max(one.sum for one in plans.values())
    assert min(one.sum for one in plans.values()) < most
    said = sweep_cost(left, gpu(8_000_000_000))
    amount = float(said.removeprefix("together ").split()[0].replace(",", ""))
    assert amount == pytest.approx(together, rel=5e-3)
    assert f"a run takes {most / 1e9:.3g} GB of the 8 GB of a GPU at most" in said
    assert "may not fit" not in said


def test_a_run_that_cannot_fit_is_named_with_what_it_takes_and_what_there_is(
    tmp_path: Path, gpu: Callable[..., Room]
) -> None:
    (cell, *_) = cells(tmp_path)
    needed = plan(cell.config).sum
    assert "GB" in sweep_cost([(cell, 1)], gpu(needed))
    for room in (gpu(needed - 1), gpu(2 * needed - 2, share=0.5)):
        with pytest.raises(UserError, match=f"{cell.name} cannot be trained here.*Nothing has"):
            sweep_cost([(cell, 1)], room)
    assert "3 together may not fit" in sweep_cost([(cell, 1)], gpu(3 * needed - 1, together=3))
    assert "may not fit" not in sweep_cost([(cell, 1)], gpu(3 * needed, together=3))


def test_what_is_not_known_is_said_to_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = plan(cells(tmp_path)[0].config)

    def some(config: Any) -> Any:
        if config.model.placement == "pre-ln":
            raise UserError("not followed in slices")
        return known

    monkeypatch.setattr(cost, "plan", some)
    made = cells(tmp_path)
    said = sweep_cost([(cell, 1) for cell in made], None)
    assert said.endswith("what the machines have is not known here; of 2 runs neither is known")
    only = [(cell, 1) for cell in made if cell.arm.placement == "pre-ln"]
    assert sweep_cost(only, None).endswith("is not known")


def test_a_gpu_is_shared_by_the_runs_that_are_spread_over_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = SimpleNamespace(total_memory=24_000_000_000, name="NVIDIA L4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    room = room_on("cuda:0", share=0.0, at_once=10, devices=4)
    assert (room.run_bytes, room.together, room.name) == (24e9, 3, "NVIDIA L4")
    assert room_on("cuda:0", share=0.25, at_once=16, devices=4).run_bytes == 6e9
    assert room_on("cpu", share=0.0, at_once=6, devices=1).together == 6


@pytest.mark.parametrize("begun", [False, True])
def test_a_long_sweep_with_a_run_too_large_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Of what is over nothing is asked."""
    small = Room(memory_bytes=1000, share=1.0, together=1, name="this machine")
    monkeypatch.setattr(cost, "room_on", lambda *asked, **how: small)
    made = cells(tmp_path / "out", LONG)
    said: list[str] = []
    options = PoolOptions(command="compare", processes=1, say=said.append)
    if begun:
        for cell in made:
            event = {"event": "finished", "update": 1_000_000}
            write_events(cell.folder, [event])
        monkeypatch.setattr(comparing, "compare", lambda *page: (None, tmp_path))
        run_comparison(made, tmp_path / "out", options)
        assert said[-1].startswith("4 runs of 1,000,000 updates, 4 of them finished")
        return
    with pytest.raises(UserError, match="cannot be trained here"):
        run_comparison(made, tmp_path / "out", options)
    assert not (tmp_path / "out" / "cells.json").exists()


def test_a_sweep_of_a_minute_is_not_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*asked: Any, **how: Any) -> Room:
        raise AssertionError("planned")

    def none(*given: Any, **how: Any) -> Any:
        raise UserError("begun")

    monkeypatch.setattr(cost, "room_on", refuse)
    monkeypatch.setattr(comparing, "train_all", none)
    with pytest.raises(UserError, match="begun"):
        run_comparison(
            cells(tmp_path, "train.duration=10"), tmp_path, PoolOptions(command="compare")
        )
