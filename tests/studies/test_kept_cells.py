"""Finished trainings kept as small files: a study goes on from them at any machine, and reads of
them what it read of the run folders.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import in_process
from normscope.compare.grid import Cell
from normscope.errors import UserError
from normscope.train import RunFolder
from normscope.train.metrics import LogMark, MetricsLog
from normscope_studies.engine import kept_cells, trainings
from normscope_studies.engine.discovery import studies
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.planning import PlanEnds
from normscope_studies.engine.trainings import train_all
from normscope_studies.figure_6 import SCALES, _Figure6Config
from normscope_studies.translation.runs import cells_of, curve_of

SMALL: _Figure6Config = SCALES["smoke"]
FIXED, _, LONG, *_ = SMALL.arms()


def cells(out: Path) -> list[Cell]:
    """Two trainings of a study whose folder is `out`, in a folder of grids of its own."""
    of_arms = cells_of(SMALL, [FIXED, LONG], out / "grids")
    return [cell for runs in of_arms.values() for cell in runs]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that has trained both."""
    out = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainings, "run_cells", in_process.run_cells)
        train_all(cells(out), "the trainings", Pieces(out))
    return out


@pytest.fixture
def elsewhere(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the same study on another machine, with the small files alone; nothing can be
    trained there.
    """
    for file in (first / "cells").rglob("*.json"):
        there = tmp_path / file.relative_to(first)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(file.read_bytes())

    def refused(config: Any, path: Path, **given: Any) -> None:
        raise AssertionError(f"{path} would be trained again")

    monkeypatch.setattr(in_process, "train_run", refused)
    monkeypatch.setattr(trainings, "run_cells", run_the_rest)
    return tmp_path


def run_the_rest(asked: list[Cell], **options: object) -> list[Any]:
    """As the pool does: what is over is left as it is."""
    left = [cell for cell in asked if not cell.folder.is_finished]
    return in_process.run_cells(left)


def edited(file: Path, **changes: Any) -> None:
    """Writes a kept training with other content, whole and sealed."""
    kept = kept_cells._KEPT.read(file)
    file.write_text(kept_cells._KEPT.text(kept | changes))


def test_a_study_goes_on_from_small_files_with_equal_curves(first: Path, elsewhere: Path) -> None:
    pieces = Pieces(elsewhere)
    train_all(cells(elsewhere), "the trainings", pieces)
    before = [curve_of(cell) for cell in cells(first)]
    assert [curve_of(cell) for cell in cells(elsewhere)] == before
    assert all(math.isfinite(curve.final_nats) for curve in before)
    # Also what they took, so that a study's processor hours are those of all machines.
    spent = Pieces(first)
    train_all(cells(first), "the trainings", spent)
    assert list(pieces.processor_seconds.values()) == list(spent.processor_seconds.values())


def test_a_kept_training_names_the_source_that_trained_it_and_no_place(first: Path) -> None:
    for cell, file in zip(cells(first), sorted((first / "cells").rglob("*.json")), strict=True):
        kept = json.loads(file.read_text())
        assert str(first) not in file.read_text()
        environment = cell.folder.environment()
        for key in ("source_sha256", "commit", "processor", "data_fingerprint"):
            assert kept["environment"][key] == environment[key]


def test_every_update_s_loss_is_kept_to_single_precision(first: Path, elsewhere: Path) -> None:
    train_all(cells(elsewhere), "the trainings", Pieces(elsewhere))
    for here, there in zip(cells(first), cells(elsewhere), strict=True):
        losses = [
            [event["nll_nats"] for event in cell.folder.events() if event["event"] == "update"]
            for cell in (here, there)
        ]
        assert losses[1] == pytest.approx(losses[0], rel=5e-7)
        others = [[event["event"] for event in cell.folder.events()] for cell in (here, there)]
        assert others[0] == others[1]


def test_a_plan_counts_what_is_kept_as_finished_and_writes_nothing(elsewhere: Path) -> None:
    files = sorted(elsewhere.rglob("*"))
    pieces = Pieces(elsewhere, plan=[])
    with pytest.raises(PlanEnds):
        train_all(cells(elsewhere), "the trainings", pieces)
    assert pieces.plan is not None
    assert [(one.runs, one.over, one.updates) for one in pieces.plan] == [(2, 2, 0)]
    assert sorted(elsewhere.rglob("*")) == files


def test_other_data_are_trained_anew_and_it_is_said(elsewhere: Path) -> None:
    file = next((elsewhere / "cells").rglob("*.json"))
    edited(file, environment=kept_cells._KEPT.read(file)["environment"] | {"data_fingerprint": "0"})
    lines: list[str] = []
    with pytest.raises(AssertionError, match="would be trained again"):
        train_all(cells(elsewhere), "the trainings", Pieces(elsewhere, say=lines.append))
    assert lines == [f"{file} is of other data, so that it is trained here"]


def test_other_settings_are_refused_with_the_file_and_what_differs(elsewhere: Path) -> None:
    file = next((elsewhere / "cells").rglob("*.json"))
    configuration = kept_cells._KEPT.read(file)["configuration"]
    edited(file, configuration=configuration.replace("width = 8\n", "width = 16\n"))
    with pytest.raises(UserError, match=r"other settings.*model\.width") as refused:
        train_all(cells(elsewhere), "the trainings", Pieces(elsewhere))
    assert str(file) in str(refused.value)
    assert not list((elsewhere / "grids").rglob("config.toml"))


def test_a_damaged_file_is_named(elsewhere: Path) -> None:
    file = next((elsewhere / "cells").rglob("*.json"))
    file.write_text(file.read_text().replace("finished", "finishes"))
    with pytest.raises(UserError, match="is damaged"):
        train_all(cells(elsewhere), "the trainings", Pieces(elsewhere))


def test_trainings_whose_checkpoints_are_asked_for_are_not_taken(elsewhere: Path) -> None:
    with pytest.raises(AssertionError, match="would be trained again"):
        train_all(cells(elsewhere), "the trainings", Pieces(elsewhere, reads_checkpoints=True))


def test_an_unfinished_training_is_not_kept_and_skipped_updates_are_counted(
    tmp_path: Path, first: Path
) -> None:
    run = RunFolder(tmp_path / "runs" / "one")
    run.path.mkdir(parents=True)
    run.write_config(cells(first)[0].folder.config_file.read_text().rpartition("# SHA-256")[0])
    log = MetricsLog(run.metrics_file, LogMark())
    logged = [
        {"event": "update", "update": 1, "lr": 0.5, "nll_nats": 3.0},
        {"event": "skipped", "update": 2, "reason": "overflow"},
        {"event": "update", "update": 3, "lr": 0.25},
        {"event": "validation", "update": 3, "nll_nats": 2.0},
    ]
    for event in logged:
        log.append(event)
    file, cost = tmp_path / "kept.json", tmp_path / "cost.json"
    assert not kept_cells.keep_run(run, cost, file)
    assert not file.exists()
    log.append({"event": "finished", "update": 3})
    log.close()
    assert kept_cells.keep_run(run, cost, file)
    restored = list(kept_cells._logged(kept_cells._KEPT.read(file)))
    assert restored == [
        {"event": "update", "update": 1, "nll_nats": 3.0},
        {"event": "skipped", "update": 2, "reason": "overflow"},
        {"event": "update", "update": 3},
        {"event": "validation", "update": 3, "nll_nats": 2.0, "summed_lr": 0.75},
        {"event": "finished", "update": 3},
    ]


def test_a_study_that_loads_what_was_trained_says_that_it_reads_checkpoints() -> None:
    """Else it would take a kept training, which has none, and fail when it looks at it."""
    package = Path(kept_cells.__file__).parents[1]
    reading = set()
    for file in package.rglob("*.py"):
        if re.search(r"\bload_run\(|from normscope.finetune", file.read_text()):
            reading.add(file.relative_to(package).parts[0].removesuffix(".py"))
    declared = set()
    for name, listed in studies().items():
        if listed.load().reads_checkpoints:
            declared.add(name.replace("-", "_"))
    assert reading
    assert reading == declared
