"""The table of runs that train, and the course of their losses in letters."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from normscope.cli.display import GridDisplay, screen, table
from normscope.compare.grid import Cell, Grid, write_configs
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
    """The first run has finished, the second has begun, and the others wait."""
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(0.1,), optimizers=("adam",), seeds=seeds
    )
    cells = grid.cells(tiny("train.duration=8"), folder)
    write_configs(cells)
    for cell, updates in zip(cells, (8, 4), strict=False):
        cell.folder.path.mkdir(parents=True)
        cell.folder.write_config(to_toml(cell.config))
        lines: list[dict[str, Any]] = [
            {
                "event": "update",
                "update": update,
                "nll_nats": 9.0 - update,
                "lr": 0.1,
                "gradient_norm": 1.0,
            }
            for update in range(1, updates + 1)
        ]
        if updates == 8:
            lines += [
                {"event": "validation", "update": 8, "nll_nats": 1.5},
                {"event": "finished", "update": 8},
            ]
        write_log(cell, lines)
    return cells


def test_a_terminal_shows_the_table_of_all_runs(tmp_path: Path) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, markup=False, highlight=False)
    states = [CellState(cell, 8) for cell in made(tmp_path)]
    for state in states:
        state.read_new_events()
    with GridDisplay(console) as display:
        display(states)
        shown = [line.rstrip() for line in file.getvalue().splitlines()]
    assert shown[-4:] == [
        " pre-ln     1     finished  8/8                      1.500 at 8         █▇▆▅▄▃▂▁",
        " pre-ln     2     waiting   4/8                                         █▆▃▁",
        " pre-ln     3     waiting   0/8",
        "all 3 runs: update 12/24",
    ]


def test_of_many_runs_those_are_shown_that_a_reader_looks_for(tmp_path: Path) -> None:
    states = [CellState(cell, 8) for cell in made(tmp_path, seeds=40)]
    for state in states:
        state.status = "finished"
    states[30].status, states[35].status = "running", "failed"
    console = Console(
        file=io.StringIO(), force_terminal=True, width=100, height=20, highlight=False
    )
    console.print(screen(states, console))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [line.split() for line in text.splitlines()]
    assert [row[1:3] for row in rows[1:]][:1] == [["1", "finished"]]
    assert ["pre-ln", "31", "running", "0/8"] in rows
    assert ["pre-ln", "36", "failed", "0/8"] in rows
    assert "and 27 more: 27 finished" in text
    assert len(rows) <= 20


@pytest.mark.parametrize(("encoding", "letters"), [("utf-8", "█▇▆▅▄▃▂▁"), ("ascii", "#*+=:-._")])
def test_letters_are_those_that_the_terminal_has(
    encoding: str, letters: str, tmp_path: Path
) -> None:
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
