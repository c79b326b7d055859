"""Runs that other processes train are followed from their files, and nothing of them is locked or written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from normscope.cli.watch import said_of_all
from normscope.compare.compare import alone
from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.manifest import FILE, Manifest, _AboutCorpus, write_manifest
from normscope.compare.watching import RunsWatch, _FoundRun, runs_below
from normscope.errors import UserError
from normscope.settings.tables import to_toml
from normscope.train import RunFolder
from tiny import tiny


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def cells_in(folder: Path, seeds: int = 2, duration: int | str = 60) -> list[Cell]:
    """Runs with configurations and no folders."""
    grid = Grid(placements_and_warmups=(("pre-ln", 0),), peak_lrs=(0.1,), optimizers=("adam",), seeds=seeds)
    made = grid.cells(tiny(f"train.duration={json.dumps(duration)}"), folder)
    write_configs(made)
    return made


def begin(cell: Cell) -> None:
    """What training does first."""
    cell.folder.path.mkdir(parents=True)
    (cell.folder.path / ".lock").touch()
    cell.folder.config_file.write_text(to_toml(cell.config))


def log(cell: Cell, *updates: int, ends: str = "", **values: Any) -> None:
    with cell.folder.metrics_file.open("a") as file:
        for update in updates:
            file.write(json.dumps({"event": "update", "update": update, "nll_nats": 5.0} | values) + "\n")
            file.write(json.dumps({"event": "validation", "update": update, "nll_nats": 4.0}) + "\n")
        if ends:
            file.write(json.dumps({"event": ends, "update": updates[-1], "reason": "a loss"}) + "\n")


def statuses(watch: RunsWatch) -> list[str]:
    return [state.status for state in watch.look()]


def test_every_state_is_read_from_files_alone(tmp_path: Path, clock: Clock) -> None:
    waits, runs, stopped, finished, broken, failed = cells = cells_in(tmp_path, seeds=6)
    for cell in cells[1:]:
        begin(cell)
        log(cell, 1)
    log(finished, 60, ends="finished")
    log(broken, 2, ends="non-finite")
    stopped.log_file.write_text("first\nno room on the device\n")
    about = _AboutCorpus("f", 5.0, [])
    write_manifest(tmp_path, Manifest(corpus=about, cells=(failed.name, waits.name), failed={failed.name: "killed"}))
    with alone(runs.folder.path, "run"):
        found = {state.cell.name: state for state in RunsWatch(tmp_path, clock).look()}
    assert list(found)[:2] == [failed.name, waits.name], "in the comparison's order"
    assert {name: state.status for name, state in found.items()} == {
        waits.name: "waiting",
        runs.name: "running",
        stopped.name: "stopped",
        finished.name: "finished",
        broken.name: "non-finite",
        failed.name: "failed",
    }
    assert [found[cell.name].message for cell in (stopped, broken, failed)] == [
        "no room on the device",
        "a loss",
        "killed",
    ]


def test_a_run_is_followed_from_its_first_update_to_its_end_at_its_rate(tmp_path: Path, clock: Clock) -> None:
    cell, other = cells_in(tmp_path)
    watch = RunsWatch(tmp_path, clock)
    assert statuses(watch) == ["waiting", "waiting"]
    begin(cell)
    with alone(cell.folder.path, "run"):
        for seconds, update in ((1.0, 10), (2.0, 20), (3.0, 30)):
            clock.seconds = seconds
            log(cell, update)
            state = watch.look()[0]
        assert (state.status, state.update, state.updates_per_second, state.seconds_left) == ("running", 30, 10.0, 3.0)
        assert not watch.over
    assert statuses(watch) == ["stopped", "waiting"]
    with alone(cell.folder.path, "run"):
        clock.seconds = 100.0
        log(cell, 31)
        assert watch.look()[0].updates_per_second is None, "the pause is no part of a rate"
        log(cell, 60, ends="finished")
        assert statuses(watch) == ["finished", "waiting"]
    assert not watch.over
    begin(other)
    log(other, 60, ends="finished")
    with alone(tmp_path, "comparison"):
        watch.look()
        assert not watch.over, "the command that holds the folder may add runs"
    watch.look()
    assert watch.over


def test_only_what_a_log_has_gained_is_read(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, _ = cells_in(tmp_path)
    begin(cell)
    log(cell, *range(1, 50))
    watch = RunsWatch(tmp_path, clock)
    watch.look()
    read: list[str] = []
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda line: read.append(line) or loads(line))
    watch.look()
    assert read == []
    changes = watch.changes
    log(cell, 50)
    watch.look()
    assert len(read) == 2
    assert watch.changes == changes + 1


def test_runs_that_are_added_appear_and_those_that_are_removed_go(tmp_path: Path, clock: Clock) -> None:
    first, second = cells_in(tmp_path)
    watch = RunsWatch(tmp_path, clock)
    watch.look()
    second.config_file.unlink()
    cells_in(tmp_path / "below", seeds=1)
    assert len(watch.look()) == 2, "the folder is not searched at every look"
    clock.seconds = 3.0
    assert [(state.cell.name, state.cell.columns()["folder"]) for state in watch.look()] == [
        (first.name, "."),
        (first.name, "below"),
    ]
    shutil.rmtree(tmp_path / "below")
    first.config_file.unlink()
    clock.seconds = 6.0
    with pytest.raises(UserError, match="holds no runs and no configurations"):
        watch.look()


def test_a_folder_is_any_above_runs_and_a_run_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ladder = tmp_path / "study/pieces/width-8"
    (cell,) = cells_in(ladder, seeds=1)
    begin(cell)
    monkeypatch.chdir(cell.folder.path.parent)
    for folder in (tmp_path, ladder, cell.folder.path, Path(cell.name), Path()):
        assert [run.folder.path.resolve() for run in runs_below(folder)] == [cell.folder.path], folder
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty holds no runs and no configurations"):
        RunsWatch(tmp_path / "empty").look()
    with pytest.raises(UserError, match="absent is no folder; give the --out"):
        RunsWatch(tmp_path / "absent").look()


def test_runs_that_nothing_but_their_names_tells_apart_are_named(tmp_path: Path) -> None:
    one, _ = cells_in(tmp_path)
    begin(one)
    for name in ("a", "b"):
        (tmp_path / "twins" / name).mkdir(parents=True)
        (tmp_path / "twins" / name / "config.toml").write_text(to_toml(one.config))
    assert [run.columns()["run"] for run in runs_below(tmp_path / "twins")] == ["a", "b"]
    assert {run.columns()["run"] for run in runs_below(tmp_path / "runs")} == {""}


def test_a_configuration_that_cannot_be_read_hides_no_run(tmp_path: Path) -> None:
    cell, _ = cells_in(tmp_path)
    cell.config_file.write_text("[[[")
    begin(cell)
    cell.folder.config_file.write_text("also not")
    log(cell, 60, ends="finished")
    assert statuses(RunsWatch(tmp_path)) == ["finished", "waiting"]


def test_the_end_of_a_run_in_epochs_is_told_by_how_far_it_is_in_them(tmp_path: Path, clock: Clock) -> None:
    (cell,) = cells_in(tmp_path, seeds=1, duration="3 epochs")
    watch = RunsWatch(tmp_path, clock)
    (state,) = watch.look()
    assert state.total_updates is None
    begin(cell)
    with alone(cell.folder.path, "run"):
        for seconds, update in ((1.0, 10), (2.0, 20), (3.0, 30)):
            clock.seconds = seconds
            log(cell, update, epoch=update / 20)
            watch.look()
    assert (state.total_updates, state.seconds_left) == (60, 3.0)


def test_a_run_whose_lock_cannot_be_seen_runs_while_it_logs(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one on another machine, whose file system passes on no locks."""
    (cell,) = cells_in(tmp_path, seeds=1)
    begin(cell)
    log(cell, 1)
    watch = RunsWatch(tmp_path, clock)
    assert statuses(watch) == ["stopped"]
    log(cell, 2)
    assert statuses(watch) == ["running"]
    clock.seconds = 59.0
    assert statuses(watch) == ["running"]
    clock.seconds = 61.0
    assert statuses(watch) == ["stopped"]


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_nothing_is_written(tmp_path: Path, clock: Clock) -> None:
    cell, _ = cells_in(tmp_path)
    begin(cell)
    log(cell, 1)
    before = tree(tmp_path)
    watch = RunsWatch(tmp_path, clock)
    for _ in range(3):
        watch.look()
        clock.seconds += 3.0
    assert tree(tmp_path) == before


def test_a_damaged_comparison_is_named(tmp_path: Path) -> None:
    cells_in(tmp_path)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(UserError, match=r"comparison\.json is damaged"):
        RunsWatch(tmp_path).look()


def test_a_look_opens_no_file_of_a_run_that_has_logged_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cell in cells_in(tmp_path, seeds=5):
        begin(cell)
        log(cell, 1)
    watch = RunsWatch(tmp_path, clock)
    watch.look()
    opened: list[str] = []
    original: Callable[..., Any] = Path.open

    def opening(path: Path, *words: Any, **options: Any) -> Any:
        opened.append(path.name)
        return original(path, *words, **options)

    monkeypatch.setattr(Path, "open", opening)
    watch.look()
    # Of its lock alone, to ask about it.
    assert set(opened) <= {".lock", "locks"}


@pytest.mark.parametrize("name", ["r", "./r", "."])
def test_a_run_may_be_named_by_one_relative_word(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r").mkdir()
    monkeypatch.chdir(tmp_path / "r" if name == "." else tmp_path)
    found = _FoundRun(folder=RunFolder(Path(name)), settings={})
    assert found.group.resolve() == tmp_path
    assert found.log_file.parent.parent.resolve() == tmp_path.parent


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "update", "update": "7"}',
        '{"event": "update", "update": -5, "nll_nats": 2.0}',
        '{"event": "update", "update": 1e999, "nll_nats": 2.0}',
        '{"event": "update", "update": 3, "epoch": 1e-320}',
        '{"event": "update", "update": 3, "nll_nats": "x"}',
        '{"event": "validation", "update": 3, "nll_nats": [1]}',
        '{"event": "decided", "update": 3, "reason": 5, "validations": "3"}',
        "[" * 5000 + "]" * 5000,
        "9" * 5000,
    ],
)
def test_a_line_that_no_run_writes_hides_no_run(line: str, tmp_path: Path) -> None:
    cells = cells_in(tmp_path, duration="3 epochs")
    for cell in cells:
        begin(cell)
        log(cell, 1, 2)
    with cells[0].folder.metrics_file.open("a") as file:
        file.write(line + "\n")
    states = RunsWatch(tmp_path).look()
    assert [type(state.update) for state in states] == [int, int]
    assert said_of_all(states).startswith("2 ")
