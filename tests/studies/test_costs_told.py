"""What a study's trainings take is told before they begin, and one that cannot fit is refused
before any other begins, on every engine.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from normscope.compare import cost
from normscope.compare.cost import Room
from normscope.compare.grid import Cell, Grid
from normscope.engines.choosing import EngineSettings, LocalSettings, RaySettings, SlurmSettings
from normscope.engines.seam import Engine, Future, Job, LargestMachine
from normscope.errors import UserError
from normscope_studies.engine import trainings
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.planning import Corpora, planned_cells
from tiny import tiny, write_events


class NoEngine(Engine):
    """Takes no job, and knows its largest machine."""

    def __init__(self, memory_bytes: int | None) -> None:
        self.memory_bytes = memory_bytes
        self.closed = False

    def start(self, job: Job) -> Future:
        raise AssertionError("a job is begun")

    def stop(self, futures: Sequence[Future]) -> None:
        assert not futures

    def close(self) -> None:
        self.closed = True

    def largest_machine(self) -> LargestMachine | None:
        if self.memory_bytes is None:
            return None
        return LargestMachine(memory_bytes=self.memory_bytes, words="the largest machine")


def cells_of(folder: Path) -> list[Cell]:
    """Models of two sizes, as a ladder of widths has."""
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),),
        peak_lrs=(1e-3, 2e-3),
        optimizers=("adam",),
        seeds=1,
    )
    small, wide = (
        grid.cells(tiny("train.duration=40", f"model.width={width}"), folder / str(width))
        for width in (16, 64)
    )
    return [*small, *wide]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was given to be trained."""
    given: list[Any] = []

    def run_cells(cells: list[Cell], **options: Any) -> list[Any]:
        given.extend(cells)
        return []

    monkeypatch.setattr(trainings, "run_cells", run_cells)
    monkeypatch.setattr(cost, "WORTH_PLANNING_SECONDS", 0.0)
    return given


def test_operations_are_those_of_every_size_and_of_updates_to_come(
    trained: list[Any], tmp_path: Path
) -> None:
    made = cells_of(tmp_path)
    write_events(made[0].folder, [{"event": "update", "update": 30}])
    write_events(made[3].folder, [{"event": "finished", "update": 40}])
    said: list[str] = []
    torch.manual_seed(3)
    drawn = torch.rand(2)
    torch.manual_seed(3)
    trainings.train_all(made, "the ladder", Pieces(tmp_path, say=said.append))
    assert torch.equal(torch.rand(2), drawn), "what a study draws has changed"
    assert trained == made
    (line,) = said
    assert line.startswith("the ladder: 3 trainings; together ")
    # As the dry run counts them, cell by cell.
    wanted = planned_cells("", made, Corpora()).flops
    amount = re.search(r"together ([\d,.e+]+) floating", line)
    assert amount is not None
    assert float(amount[1].replace(",", "")) == pytest.approx(wanted, rel=5e-3)


def test_a_study_of_seconds_says_nothing(
    trained: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(trainings, "run_cells", lambda cells, **options: [])
    said: list[str] = []
    trainings.train_all(cells_of(tmp_path), "the ladder", Pieces(tmp_path, say=said.append))
    assert said == []


@pytest.mark.parametrize("settings", [LocalSettings(), RaySettings(), SlurmSettings()])
def test_one_that_cannot_fit_is_refused_before_any_other_begins(
    settings: EngineSettings, trained: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cells_of(tmp_path)
    room = cost.plan(made[2].config).sum - 1
    engine = NoEngine(room)
    monkeypatch.setattr(trainings, "engine_for", lambda *asked: engine)
    here = Room(memory_bytes=room, share=1.0, together=1, name="this machine")
    monkeypatch.setattr(cost, "room_on", lambda *asked, **how: here)
    with pytest.raises(UserError, match=r"cannot be trained here.*Nothing has begun"):
        trainings.train_all(made, "the ladder", Pieces(tmp_path, engine=settings))
    assert trained == []
    assert engine.closed
    assert not list(tmp_path.rglob("cells.json"))
    engine.memory_bytes = room + 1
    here = Room(memory_bytes=room + 1, share=1.0, together=1, name="this machine")
    trainings.train_all(made, "the ladder", Pieces(tmp_path, engine=settings))
    assert trained == made


def test_where_machines_are_not_known_it_says_so(
    trained: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "engine_for", lambda *asked: NoEngine(None))
    said: list[str] = []
    pieces = Pieces(tmp_path, engine=RaySettings(), say=said.append)
    trainings.train_all(cells_of(tmp_path), "the ladder", pieces)
    assert "what the machines have is not known here" in said[0]
