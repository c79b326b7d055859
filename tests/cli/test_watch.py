"""`normscope watch` on a terminal, into a file and into a pipe; and sparklines wherever runs are shown."""

import io
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from normscope.cli import main as cli, watch as verb
from normscope.cli.display import screen, table
from normscope.cli.watch import _WatchDisplay, said_of_all, troubles
from normscope.compare.compare import LivePage
from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.manifest import FILE, Manifest, _AboutCorpus, write_manifest
from normscope.compare.state import CellState, _LossCourse
from normscope.report.words import sparkline
from normscope.settings.tables import to_toml
from normscope.train.metrics import LogMark, MetricsLog
from tiny import tiny


def write_log(cell: Cell, events: list[dict[str, Any]]) -> None:
    log = MetricsLog(cell.folder.metrics_file, LogMark())
    for event in events:
        log.append(event)
    log.close()


def made(folder: Path, seeds: int = 3) -> list[Cell]:
    """The first run has finished, the second has stopped, and the others wait."""
    grid = Grid(placements_and_warmups=(("pre-ln", 0),), peak_lrs=(0.1,), optimizers=("adam",), seeds=seeds)
    cells = grid.cells(tiny("train.duration=8"), folder)
    write_configs(cells)
    for cell, updates in zip(cells, (8, 4), strict=False):
        cell.folder.path.mkdir(parents=True)
        cell.folder.write_config(to_toml(cell.config))
        lines: list[dict[str, Any]] = [
            {"event": "update", "update": update, "nll_nats": 9.0 - update, "lr": 0.1, "gradient_norm": 1.0}
            for update in range(1, updates + 1)
        ]
        if updates == 8:
            lines += [{"event": "validation", "update": 8, "nll_nats": 1.5}, {"event": "finished", "update": 8}]
        write_log(cell, lines)
    for cell in cells[1:2]:
        cell.log_file.write_text("no \x1b[31mroom\n")
    return cells


def watched(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["normscope", "watch", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def test_once_prints_every_run_and_what_went_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = made(tmp_path)[1].name
    assert watched(str(tmp_path), "--once", monkeypatch=monkeypatch) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        " placement  seed  state     update  updates/s  left  validation (nats)  loss",
        " pre-ln     1     finished  8/8                      1.500 at 8         █▇▆▅▄▃▂▁",
        " pre-ln     2     stopped   4/8                                         █▆▃▁",
        " pre-ln     3     waiting   0/8",
        f"stopped: {stopped}: no \ufffd[31mroom",
        "1 stopped, 1 waiting, 1 finished; all 3 runs: update 12/24",
    ]


def test_a_folder_without_runs_is_the_users_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watched(str(tmp_path), "--once", monkeypatch=monkeypatch) == 2
    assert "holds no runs and no configurations" in capsys.readouterr().err


def test_runs_that_are_over_need_no_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(tmp_path)[0].folder.path
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    assert watched(str(first), monkeypatch=monkeypatch) == 0
    captured = capsys.readouterr()
    assert "1 finished; 1 run: update 8/8" in captured.out
    assert "no longer watched" not in captured.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_ctrl_c_is_how_a_watch_ends(
    number: signal.Signals,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cells = made(tmp_path)

    def sleep(seconds: float) -> None:
        if cells[2].folder.path.exists():
            os.kill(os.getpid(), number)
        cells[2].folder.path.mkdir(exist_ok=True)
        cells[2].folder.metrics_file.write_text('{"event": "finished", "update": 8}\n')

    monkeypatch.setattr(verb.time, "sleep", sleep)
    assert watched(str(tmp_path), monkeypatch=monkeypatch) == code
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert lines[:2] == [
        "1 stopped, 1 waiting, 1 finished; all 3 runs: update 12/24",
        f"{cells[2].name}: finished, update 8/8",
    ]
    if code == 0:
        assert lines[2:] == ["no longer watched; the runs go on as they do"]
        assert "1 stopped, 2 finished; all 3 runs: update 20/24" in captured.out


def test_a_terminal_shows_the_table_and_what_went_wrong(tmp_path: Path) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, markup=False, highlight=False)
    states = [CellState(cell, 8) for cell in made(tmp_path)]
    for state, status in zip(states, ("finished", "failed", "running"), strict=True):
        state.read_new_events()
        state.status, state.message = status, "[b]no room" if status == "failed" else ""
    with _WatchDisplay(console) as display:
        display(states)
    text = file.getvalue()
    assert "█▇▆▅▄▃▂▁" in text
    assert f"failed: {states[1].cell.name}: [b]no room" in text
    assert "1 running, 1 failed, 1 finished" in text


def test_the_end_of_all_runs_is_said_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb.time, "time", lambda: 1_700_000_000.0)
    seconds = 0.0
    (state,) = [CellState(cell, 100, clock=lambda: seconds) for cell in made(tmp_path, seeds=1)]
    state.begin()
    for update in (10, 20, 40):
        state.cell.folder.metrics_file.write_text(
            "".join(json.dumps({"event": "update", "update": number}) + "\n" for number in range(1, update + 1))
        )
        state.read_new_events()
        seconds += 60.0
    # Fifteen updates a minute, and sixty are left.
    now, later = time.localtime(1_700_000_000.0), time.localtime(1_700_000_240.0)
    wanted = time.strftime("at %H:%M" if now[:3] == later[:3] else "on %Y-%m-%d at %H:%M", later)
    assert (
        said_of_all([state]) == f"1 running; 1 run: update 40/100, 0.25 updates/s, about 4 min 00 s left, ends {wanted}"
    )
    assert verb._at(3 * 86_400.0).startswith("on 2023-11-1")


def test_of_many_runs_those_are_shown_that_a_reader_looks_for(tmp_path: Path) -> None:
    states = [CellState(cell, 8) for cell in made(tmp_path, seeds=40)]
    for state in states:
        state.status = "finished"
    states[30].status, states[35].status = "running", "failed"
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=20, highlight=False)
    console.print(screen(states, console, "below"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [line.split() for line in text.splitlines()]
    assert [row[1:3] for row in rows[1:]][:1] == [["1", "finished"]]
    assert ["pre-ln", "31", "running", "0/8"] in rows
    assert ["pre-ln", "36", "failed", "0/8"] in rows
    assert "and 27 more: 27 finished" in text
    assert len(rows) <= 20


def test_troubles_beyond_a_few_are_counted(tmp_path: Path) -> None:
    states = [CellState(cell, 8, status="failed", message="no room") for cell in made(tmp_path, seeds=7)]
    assert len(troubles(states)) == 7
    assert troubles(states, 5)[5:] == ["and 2 more; --once prints them all"]


@pytest.mark.parametrize(("encoding", "letters"), [("utf-8", "█▇▆▅▄▃▂▁"), ("ascii", "#*+=:-._")])
def test_letters_are_those_that_the_terminal_has(encoding: str, letters: str, tmp_path: Path) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=100, force_terminal=True)
    (state,) = [CellState(cell, 8) for cell in made(tmp_path, seeds=1)]
    state.read_new_events()
    console.print(table([state], console))
    file.seek(0)
    assert letters in file.read()


def test_a_narrow_terminal_has_narrower_sparklines_or_none(tmp_path: Path) -> None:
    (state,) = [CellState(cell, 8) for cell in made(tmp_path, seeds=1)]
    state.read_new_events()
    letters = []
    for width in range(50, 100):
        file = io.StringIO()
        console = Console(file=file, width=width, force_terminal=True)
        console.print(table([state], console))
        text = file.getvalue()
        assert ("8/8" in text and "…" not in text) or width < 60
        letters.append(sum(sign in "▁▂▃▄▅▆▇█" for sign in text))
    assert list(dict.fromkeys(letters)) == [0, 6, 7, 8]


def test_a_sparkline_goes_from_the_lowest_to_the_highest_and_marks_what_is_broken() -> None:
    assert sparkline([1.0, 8.0, float("nan"), 4.5]) == "▁█×▅"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([]) == ""
    assert sparkline([0.0, 1.0, float("inf")], ascii_only=True) == "_#x"


@pytest.mark.parametrize("updates", [1, 63, 64, 1000])
def test_a_course_keeps_the_means_of_equal_stretches_in_bounded_memory(updates: int) -> None:
    course = _LossCourse()
    for update in range(updates):
        course.add(update, float(update))
    each = course.updates_each
    stretches = [range(start, min(updates, start + each)) for start in range(0, updates, each)]
    assert len(stretches) <= 64
    assert course.means(64) == [sum(stretch) / len(stretch) for stretch in stretches]
    few = course.means(4)
    assert len(few) == min(4, updates)
    assert few == sorted(few)


def test_a_course_of_few_validations_is_not_stretched_by_gaps() -> None:
    course = _LossCourse()
    for update, value in ((0, 4.0), (500, 3.0), (900, 1.0)):
        course.add(update, value)
    assert course.means(16) == [4.0, 3.0, 1.0]


def reported(folder: Path) -> list[Cell]:
    """Runs of a comparison that says what its report needs."""
    cells = made(folder, seeds=2)
    corpus = _AboutCorpus("f", 5.0, [("Corpus", "none")])
    write_manifest(folder, Manifest(corpus=corpus, cells=tuple(cell.name for cell in cells)))
    return cells


def test_a_report_follows_and_stays_at_the_end_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    second = reported(tmp_path)[1]
    page, seen = tmp_path / "elsewhere/report.html", list[str]()

    def sleep(seconds: float) -> None:
        seen.append(page.read_text(encoding="utf-8"))
        write_log(second, [{"event": "validation", "update": 8, "nll_nats": 1.0}, {"event": "finished", "update": 8}])

    monkeypatch.setattr(verb.time, "sleep", sleep)
    before = {path for path in tmp_path.rglob("*") if path != page.parent}
    assert watched(str(tmp_path), "--html", "--out", str(page.parent), monkeypatch=monkeypatch) == 0
    assert f"report: {page}" in " ".join(capsys.readouterr().err.split())
    assert len(seen) == 1
    assert 'data-reload-seconds="' in seen[0].partition("<script")[0]
    last = page.read_text(encoding="utf-8")
    assert "data-reload-seconds" not in last.partition("<script")[0]
    assert ("1 finished, 1 unfinished" in seen[0], "2 finished" in last) == (True, True)
    assert {path for path in tmp_path.rglob("*") if path.parent != page.parent and path != page.parent} == before
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]


@pytest.mark.thorough
def test_a_report_is_written_again_where_something_changed_and_not_too_often(tmp_path: Path) -> None:
    seconds = 0.0
    cells = reported(tmp_path)
    page = LivePage(tmp_path, tmp_path / "report.html", clock=lambda: seconds)
    assert page.write_if_due(1)
    seconds = 60.0
    assert not page.write_if_due(1)
    assert page.write_if_due(2)
    assert not page.write_if_due(3)
    seconds = 62.0
    assert not page.write_if_due(3)
    seconds = 63.0
    assert page.write_if_due(3)
    (tmp_path / FILE).unlink()  # as a folder of a study, which says of no corpus; it is known by now
    cells[0].config_file.unlink()
    page.write_last()
    assert "1 configuration, 1 run: 1 unfinished" in page.file.read_text(encoding="utf-8")


def test_where_a_report_goes_needs_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path)
    assert watched(str(tmp_path), "--out", "x", monkeypatch=monkeypatch) == 2
    assert "--out x is where --html writes the report; give --html too" in capsys.readouterr().err
