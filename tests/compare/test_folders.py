"""A comparison's folder: it grows, remembers, refuses what does not belong, and gives its report at
any time.
"""

import errno
import os
import random
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from normscope import files
from normscope.cli import main as cli
from normscope.compare import compare as comparing, page, pool as pool_of_runs
from normscope.compare.compare import ComparisonResult, prepare, report, run_comparison
from normscope.compare.grid import Cell, Grid, configurations
from normscope.compare.manifest import former_manifest
from normscope.compare.pool import PoolOptions
from normscope.compare.state import CellState
from normscope.data import opening
from normscope.engines.alone import alone
from normscope.errors import UserError
from normscope.report.comparison.contents import ComparisonPage
from normscope.runs.config import replaced
from normscope.runs.trained import SCORES
from normscope.settings.tables import to_toml
from normscope.signals import Interrupted
from normscope.tasks.run_config import RunConfig
from normscope.train.metrics import LogMark, MetricsLog
from tiny import flip, resealed, tiny

BASE = tiny("train.duration=4")
BEGINNING = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="generator" content="NormScope">\n'
)
"""Of a page of ours."""


def pretend(cell: Cell, updates: int) -> None:
    """What a training of the cell up to that update leaves of metrics and configuration."""
    cell.folder.path.mkdir(parents=True, exist_ok=True)
    cell.folder.write_config(to_toml(cell.config))
    numbers = {"nll_nats": 3.0, "lr": 0.1, "epoch": 1.0, "gradient_norm": 1.0}
    events: list[dict[str, Any]] = [
        {"event": "update", "update": n} | numbers for n in range(1, updates + 1)
    ]
    events.append({"event": "validation", "update": updates, "nll_nats": 2.0})
    if updates == cell.config.train.duration:
        events.append({"event": "finished", "update": updates, "best_update": updates})
    log = MetricsLog(cell.folder.metrics_file, LogMark())
    for event in events:
        log.append(event)
    log.close()


def pool(
    trained: Callable[[Cell], int] = lambda cell: int(cell.config.train.duration),
    stopped: bool = False,
    message: str = "",
) -> Callable[..., list[CellState]]:
    """Stands in for the pool: its runs come as far as `trained` says, and then a signal may stop
    it.
    """

    def run_cells(
        cells: Iterable[Cell], *, watch: Any, updates: int, **options: object
    ) -> list[CellState]:
        states = [CellState(cell, updates) for cell in cells]
        for state in states:
            state.read_new_events()
            if not state.over and (made := trained(state.cell)):
                pretend(state.cell, made)
                state.read_new_events()
            state.message = message
        watch(states)
        if stopped:
            raise Interrupted(signal.SIGINT, "after every run under way has saved")
        return states

    return run_cells


@pytest.fixture(autouse=True)
def quick_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figures: drawing them takes seconds, and they are tested elsewhere."""

    def write(page: ComparisonPage, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.html").write_text(BEGINNING + page.title)
        return folder / "report.html"

    monkeypatch.setattr(page, "write", write)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ComparisonResult]:
    """`run_comparison` in one folder with the pool that stands in."""

    def call(
        *placements: str,
        base: RunConfig = BASE,
        runs: Any = None,
        title: str | None = None,
        **changes: Any,
    ) -> ComparisonResult:
        monkeypatch.setattr(pool_of_runs, "run_cells", runs or pool())
        axes = {"peak_lrs": (1e-3,), "optimizers": ("adam",), "seeds": 1} | changes
        grid = Grid(placements_and_warmups=tuple((name, 0) for name in placements), **axes)
        options = PoolOptions(command=f"compare {' '.join(placements)}", processes=1)
        return run_comparison(
            grid.cells(base, tmp_path / "out"), tmp_path / "out", options, title=title
        )

    return call


def rows(page: ComparisonPage) -> list[tuple[str, list[int]]]:
    """Placement and seeds of every configuration."""
    return [(row.name.group, [seed.seed for seed in row.seeds]) for row in page.configurations]


def test_a_comparison_grows_by_placements_rates_and_seeds_and_keeps_what_it_has(
    run: Callable[..., ComparisonResult],
) -> None:
    run("post-ln", "pre-ln")
    assert rows(run("peri-ln").page) == [("Post-LN", [1]), ("Pre-LN", [1]), ("Peri-LN", [1])]
    assert rows(run("pre-ln", seeds=2).page)[1] == ("Pre-LN", [1, 2])
    done = run("pre-ln", peak_lrs=(2e-3,))
    assert len(done.page.configurations) == 4
    assert str(done.page.configurations[3].name) == "Pre-LN, no warm-up, rate 2e-3"
    assert done.page.commands[:3] == ["compare post-ln pre-ln", "compare peri-ln", "compare pre-ln"]
    # Those of the runs name files that are there.
    assert all(Path(shlex.split(line)[4]).is_file() for line in done.page.commands[3:])
    assert dict(done.page.what)["Seeds"] == "1 to 2 per row"


def test_a_longer_duration_goes_on_and_the_others_stay(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    run("post-ln", "pre-ln")
    shutil.rmtree(
        tmp_path / "out/runs"
    )  # so that the test is about the comparison, and not about the run folder
    done = run("pre-ln", base=replaced(BASE, train__duration=6))
    assert [(row.name.group, row.seeds[0].updates) for row in done.page.configurations] == [
        ("Post-LN", 0),
        ("Pre-LN", 6),
    ]
    assert dict(done.page.what)["Duration"].startswith("4 updates or 6 updates")
    assert (
        done.page.subtitle
        == "The same model and data in every row; what differs is named in the row."
    )


def test_a_duration_shorter_than_what_is_trained_is_refused(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    run("post-ln")
    with pytest.raises(
        UserError,
        match=r"has been trained for 4 updates, and train\.duration asks for 3; give a longer",
    ):
        run("post-ln", base=replaced(BASE, train__duration=3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model__width": 32}, "model.width: 16 there, 32 now"),
        (
            {"data__toy_pairs": 200},
            "data.toy_pairs: 300 there, 200 now; fingerprint of the corpus: ",
        ),
    ],
)
def test_what_cannot_be_joined_is_named(
    run: Callable[..., ComparisonResult], tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    run("post-ln")
    before = (tmp_path / "out/comparison.json").read_text()
    with pytest.raises(UserError) as error:
        run("pre-ln", base=replaced(BASE, **settings))
    assert f"holds a comparison with other settings ({message}" in str(error.value)
    assert (tmp_path / "out/comparison.json").read_text() == before
    assert [name.split("_")[0] for name in configurations(tmp_path / "out")] == ["post-ln"]


def test_settings_of_runs_that_have_not_begun_are_those_of_the_comparison(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    done = run("post-ln", runs=pool(lambda cell: 0, stopped=True))
    assert not any(cell.folder.path.exists() for cell in done.cells)
    with pytest.raises(UserError, match=r"with other settings \(model.width: 16 there, 32 now\)"):
        run("post-ln", base=replaced(BASE, model__width=32))
    assert rows(report([tmp_path / "out"], tmp_path / "page")[0]) == [("Post-LN", [1])]


def test_a_stopped_comparison_has_its_report_and_it_can_be_made_again(
    run: Callable[..., ComparisonResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = pool(lambda cell: 2 if cell.arm.placement == "post-ln" else 0, stopped=True)
    done = run("post-ln", "pre-ln", runs=runs)
    assert done.stopped is not None
    assert done.stopped.exit_code == 130
    statuses = [("Post-LN", "unfinished", 2), ("Pre-LN", "missing", 0)]
    assert [
        (r.name.group, r.seeds[0].status, r.seeds[0].updates) for r in done.page.configurations
    ] == statuses
    done.file.unlink()
    # The corpus is gone by now.
    monkeypatch.delattr(opening, "toy_corpus")
    page, file = report([tmp_path / "out"], tmp_path / "out")
    assert file == done.file
    assert file.is_file()
    assert (page.configurations, page.what) == (done.page.configurations, done.page.what)
    assert (page.title, page.commands) == (done.page.title, done.page.commands)


def test_a_report_made_meanwhile_says_that_a_run_is_running(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    run("post-ln", runs=pool(lambda cell: 2, stopped=True))
    (path,) = (tmp_path / "out/runs").iterdir()
    with alone(path, "comparison"):
        page, _ = report([tmp_path / "out"], tmp_path / "elsewhere", title="Now")
    assert (page.configurations[0].seeds[0].status, page.title) == ("running", "Now")
    assert (tmp_path / "elsewhere/report.html").is_file()


def test_a_failure_is_remembered_until_the_run_has_gone_on(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def fails(cells: list[Cell], *, watch: Any, **options: object) -> list[CellState]:
        return [CellState(cell, 4, status="failed", message="no room") for cell in cells]

    done = run("post-ln", runs=fails)
    assert [line.split(" (log")[0] for line in done.problems] == [
        "post-ln_warmup-0_lr-0.001_adam_seed-1: no room"
    ]
    page, _ = report([out], out)
    assert (page.configurations[0].seeds[0].status, page.configurations[0].seeds[0].message) == (
        "failed",
        "no room",
    )
    assert run("post-ln").page.configurations[0].seeds[0].status == "finished"


def test_a_failed_evaluation_does_not_lose_the_training(
    run: Callable[..., ComparisonResult],
) -> None:
    done = run("post-ln", runs=pool(message="trained, but evaluate failed: no memory"))
    assert done.page.configurations[0].seeds[0].status == "finished"
    assert done.page.configurations[0].verdict.text == "learned"
    assert len(done.problems) == 1
    assert "trained, but evaluate failed: no memory" in done.problems[0]


def test_a_folder_of_an_earlier_version_says_by_its_runs_what_it_holds(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    done = run("post-ln", "pre-ln")
    for name in ("comparison.json", "cells.json"):
        (tmp_path / "out" / name).unlink()
        page, _ = report([tmp_path / "out"], tmp_path / "out")
        assert page.configurations == done.page.configurations
    assert rows(run("peri-ln").page) == [("Post-LN", [1]), ("Pre-LN", [1]), ("Peri-LN", [1])]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"title": 1}', '{"corpus": {"facts": [[1]]}}', "\udcff", "[" * 100_000]
)
def test_a_damaged_manifest_is_named(
    run: Callable[..., ComparisonResult], tmp_path: Path, content: str
) -> None:
    run("post-ln")
    (tmp_path / "out/comparison.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=r"comparison\.json is damaged .*; remove it and try"):
        report([tmp_path / "out"], tmp_path / "out")


def test_a_flipped_bit_of_any_byte_of_a_manifest_is_refused_in_one_line(
    run: Callable[..., ComparisonResult], tmp_path: Path, stride: int
) -> None:
    run("post-ln")
    file, dice = tmp_path / "out/comparison.json", random.Random(3)
    for byte in range(0, file.stat().st_size, stride):
        bit = 8 * byte + dice.randrange(8)
        flip(file, bit)
        with pytest.raises(
            UserError,
            match=(
                rf"^{file} is damaged .*; remove it and try again: the runs are found without it$"
            ),
        ) as error:
            former_manifest(tmp_path / "out", lambda config: pytest.fail("the file says it"))
        assert "\n" not in str(error.value)
        flip(file, bit)
    file.unlink()  # as the message says
    assert rows(run("post-ln").page) == [("Post-LN", [1])]


def test_bytes_of_a_command_line_that_are_no_text_are_written_as_escapes(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    assert run("post-ln", title="one \udcff").page.title == r"one \udcff"
    assert run("post-ln").page.title == r"one \udcff"


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    "changed",
    [
        {"corpus": {"facts": [[1]]}},
        {"corpus": {"fingerprint": "", "facts": [], "unigram_nats": 2**40}},
        {"costs": {"post-ln": {"parameters": 1}}},
        {"costs": {"post-ln": {"parameters": "1", "memory_bytes": 1, "flops": 1, "seconds": 1}}},
        {"costs": {"post-ln": {"parameters": 1, "memory_bytes": 0, "flops": 1, "seconds": 1}}},
        {"weights": {"post-ln": {"told": 1}}},
        {"weights": {"post-ln": {"told": "drawn", "other": "x"}}},
        {"weights": {"post-ln": {}}},
        {"costs": {"post-ln": {"parameters": True, "memory_bytes": 1, "flops": 1, "seconds": 1}}},
        {"costs": {"post-ln": {"parameters": 1, "memory_bytes": 1e308, "flops": 1, "seconds": 1}}},
    ],
)
def test_a_manifest_that_does_not_mean_anything_is_refused(
    run: Callable[..., ComparisonResult], tmp_path: Path, changed: dict[str, Any]
) -> None:
    run("post-ln")
    resealed(tmp_path / "out/comparison.json", **changed)
    with pytest.raises(UserError, match=r"comparison\.json is damaged \(\w+Error: .*\); remove it"):
        report([tmp_path / "out"], tmp_path / "page")


def test_a_run_whose_log_is_damaged_is_shown_and_the_others_are_reported(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    run("post-ln", "pre-ln")
    (tmp_path / "out/runs/post-ln_warmup-0_lr-0.001_adam_seed-1/metrics.jsonl").write_text(
        "oh no\n"
    )
    page, _ = report([tmp_path / "out"], tmp_path / "out")
    assert [row.seeds[0].status for row in page.configurations] == ["failed", "finished"]
    assert "metrics.jsonl" in page.configurations[0].seeds[0].message


def test_scores_of_every_split_stand_in_columns_of_their_own(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    run("post-ln", "pre-ln")
    out = tmp_path / "out"
    first, second = (
        out / f"runs/{name}_warmup-0_lr-0.001_adam_seed-1" for name in ("post-ln", "pre-ln")
    )
    for split, bleu in (("test", 20.0), ("valid", 30.0)):
        scores = {"run": "", "split": split, "bleu": bleu, "bleu_tokenised": bleu + 1, "update": 4}
        (first / f"evaluation-{split}.json").write_text(SCORES.text(scores))
    (second / "evaluation-test.json").write_text(
        '{"split": "te'
    )  # written by a process that was killed
    page, _ = report([out], out)
    post, pre = (row.seeds[0].scores for row in page.configurations)
    assert post == {
        "BLEU, test": 20.0,
        "BLEU, test, tokenised": 21.0,
        "BLEU, valid": 30.0,
        "BLEU, valid, tokenised": 31.0,
    }
    assert pre == {}
    for file in sorted(first.glob("evaluation-*.json")):
        file.write_text(file.read_text().replace("0.0", "1.0"))
    page, _ = report([out], out)
    assert page.configurations[0].seeds[0].scores == {}


def test_scores_are_those_of_the_best_checkpoint(tmp_path: Path) -> None:
    """A run that has gone on for longer may have another one."""
    (cell,) = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=1
    ).cells(BASE, tmp_path)
    pretend(cell, 4)
    cell.evaluation_file("test").write_text(SCORES.text({"run": "", "split": "test", "update": 4}))
    assert cell.is_evaluated("test")
    assert not cell.is_evaluated("valid")
    cell.evaluation_file("test").write_text(SCORES.text({"run": "", "split": "test", "update": 2}))
    assert not cell.is_evaluated("test")
    pretend(cell, 3)
    assert not cell.is_evaluated("test")
    cell.folder.metrics_file.write_text("oh no\n")
    assert not cell.is_evaluated("test")


def test_single_runs_and_comparisons_make_one_report(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    run("post-ln")
    single = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=1
    )
    (cell,) = single.cells(BASE, tmp_path / "other")
    pretend(cell, 3)
    alone_page, _ = report([cell.folder.path], tmp_path / "one")
    assert rows(alone_page) == [("Pre-LN", [1])]
    both, _ = report([tmp_path / "out", cell.folder.path], tmp_path / "both")
    assert rows(both) == [("Post-LN", [1]), ("Pre-LN", [1])]
    assert both.configurations[1].seeds == alone_page.configurations[0].seeds
    with pytest.raises(UserError, match="a report holds each run once"):
        report([tmp_path / "out", tmp_path / "out"], tmp_path / "both")
    (wide,) = single.cells(replaced(BASE, model__width=32), tmp_path / "wide")
    pretend(wide, 3)
    with pytest.raises(UserError, match=r"model\.width: 16 there, 32 now"):
        report([tmp_path / "out", wide.folder.path], tmp_path / "both")
    with pytest.raises(UserError, match="holds no comparison and is no run"):
        report([tmp_path], tmp_path)


def test_a_second_command_on_the_folder_is_refused_at_once(
    run: Callable[..., ComparisonResult], tmp_path: Path
) -> None:
    with alone(tmp_path / "out", "comparison"), pytest.raises(UserError) as error:
        run("post-ln")
    assert f"another process ({os.getpid()} on " in str(error.value)
    assert "is at work on the comparison in" in str(error.value)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
    assert run("post-ln").problems == []


def test_a_folder_that_is_made_and_those_above_it_are_on_disk_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files.whole, "sync", synced.append)
    with alone(tmp_path / "some" / "out", "comparison"):
        assert synced == [tmp_path, tmp_path / "some"]


def test_a_closed_terminal_leaves_the_report_and_the_exit_code_of_its_signal(
    run: Callable[..., ComparisonResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("post-ln", runs=pool(lambda cell: 2, stopped=True))
    hung_up = replace(
        done, stopped=Interrupted(signal.SIGHUP, "after every run under way has saved")
    )
    monkeypatch.setattr(comparing, "run_comparison", lambda *words, **options: hung_up)

    def closed(*words: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(typer, "echo", closed)
    monkeypatch.setattr(sys, "argv", ["normscope", "demo", "--out", str(tmp_path / "demo")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 129


def test_a_dry_run_writes_the_configurations_and_a_command_for_each_run_that_is_not_over(
    tmp_path: Path,
) -> None:
    arms = (("post-ln", 0), ("pre-ln", 0))
    grid = Grid(placements_and_warmups=arms, peak_lrs=(1e-3,), optimizers=("adam",), seeds=2)
    cells = grid.cells(BASE, tmp_path)
    pretend(cells[0], 4)
    (tmp_path / "cells").mkdir()
    left = tmp_path / "cells" / f"{files.UNFINISHED}{cells[1].config_file.name}-01234567"
    left.write_text("of a killed command")
    synced = list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", synced.append)
        commands = [shlex.split(line) for line in prepare(cells, tmp_path)]
        few = len(synced)
        prepare(replace(grid, seeds=5).cells(BASE, tmp_path), tmp_path)
    assert len(synced) <= 2 * few  # however many runs
    assert [Path(words[2]) for words in commands] == [cell.config_file for cell in cells[1:]]
    assert [Path(words[4]) for words in commands] == [cell.folder.path for cell in cells[1:]]
    assert all(cell.config_file.is_file() and not cell.folder.path.exists() for cell in cells[1:])
    assert not list((tmp_path / "cells").glob(".*"))
    cells[1].config_file.write_text("width = 1\n")
    with pytest.raises(UserError, match="was not written by NormScope"):
        prepare(cells, tmp_path)


@pytest.mark.parametrize("removed", [True, False])
def test_a_folder_that_goes_while_its_runs_train_is_told_in_a_line(
    tmp_path: Path, run: Callable[..., ComparisonResult], removed: bool
) -> None:
    folder = tmp_path / "out"

    def goes(cell: Cell) -> int:
        if removed:
            shutil.rmtree(folder)
        else:
            folder.rename(tmp_path / "elsewhere")
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(cell.log_file))

    with pytest.raises(UserError, match="out was renamed or removed while its runs were trained"):
        run("pre-ln", runs=pool(goes))
    assert not folder.exists()
