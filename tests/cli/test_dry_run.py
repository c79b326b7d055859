"""A dry run of a comparison prints and writes for shells, and for machines not known yet."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from normscope.cli import main as cli
from normscope.compare.compare import report
from normscope.compare.grid import Cell, Grid
from normscope.compare.manifest import about, refuse_unlike
from normscope.data.opening import toy_corpus
from normscope.errors import UserError
from normscope.runs.config import load, load_run_config
from normscope.runs.run import train_run
from normscope.settings.tables import as_table, to_toml
from normscope.train import RunFolder
from tiny import SETTINGS, write_events

LEFT_OPEN = tuple(one for one in SETTINGS if not one.startswith(("train.threads", "train.device")))
SHORT = ("train.duration=2", "train.validate_every=2", "train.checkpoint_every=2")
STUB = '#!/bin/sh\nprintf "%s\\n" "$@" "" >> "$CALLS"\n'
"""Stands in for `normscope`: writes the words that it was given, one a line, and an empty line."""


@pytest.fixture
def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Gives what `normscope compare --dry-run` prints into a pipe of a narrow terminal."""

    def call(out: Path, *settings: str) -> str:
        words = ["--placements", "pre-ln,post-ln", "--warmup-updates", "0", "--out", str(out)]
        for setting in (*LEFT_OPEN, *SHORT, *settings):
            words += ["--set", setting]
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr(sys, "argv", ["normscope", "compare", "--dry-run", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    return call


def test_a_shell_runs_each_line_as_one_command(printed: Callable[..., str], tmp_path: Path) -> None:
    out = tmp_path / ("it's a long name of a folder " * 4)
    lines = printed(out)
    stub = tmp_path / "bin" / "normscope"
    stub.parent.mkdir()
    stub.write_text(STUB, encoding="utf-8")
    stub.chmod(0o755)
    calls = tmp_path / "calls"
    environment = {"PATH": f"{stub.parent}:/usr/bin:/bin", "CALLS": str(calls)}
    subprocess.run(["sh"], input=lines, text=True, env=environment, check=True)
    given = [call.split("\n") for call in calls.read_text(encoding="utf-8").split("\n\n")[:-1]]
    names = [f"{name}_warmup-0_lr-0.003_adam_seed-1" for name in ("pre-ln", "post-ln")]
    assert given == [
        ["train", str(out / "cells" / f"{name}.toml"), "--run", str(out / "runs" / name)]
        for name in names
    ]
    assert lines.count("\n") == 2


def test_the_machine_that_trains_says_what_is_left_to_it(
    printed: Callable[..., str], tmp_path: Path
) -> None:
    words = shlex.split(printed(tmp_path).splitlines()[0])
    file, run = Path(words[2]), Path(words[4])
    asked = load(file).train
    assert (asked.device, asked.precision, asked.input_workers) == ("auto", "auto", "auto")
    assert asked.threads == 1, "as every run of a comparison, unless it is given"
    train_run(load(file), run)
    began = load_run_config(RunFolder(run)).train
    assert (began.device, began.precision, began.input_workers) == ("cpu", "fp32", 0)
    page, _ = report([tmp_path], tmp_path / "page")
    assert [row.seeds[0].status for row in page.configurations] == ["missing", "finished"]
    assert dict(page.what)["Precision"] == "fp32 on cpu, 1 thread(s) per run"
    assert len(printed(tmp_path).splitlines()) == 1, "a run that is over needs no command"


def test_threads_that_are_left_open_stay_so(printed: Callable[..., str], tmp_path: Path) -> None:
    (file,) = {Path(shlex.split(printed(tmp_path, 'train.threads="auto"'))[2])}
    assert load(file).train.threads == "auto"


def test_a_run_that_has_begun_elsewhere_keeps_the_device_that_is_not_here(
    printed: Callable[..., str], tmp_path: Path
) -> None:
    first = shlex.split(printed(tmp_path).splitlines()[0])
    run = RunFolder(Path(first[4]))
    table = as_table(load(Path(first[2])))
    table["train"] |= {"device": "cuda:7", "precision": "bf16", "input_workers": 2}
    run.path.mkdir(parents=True)
    run.write_config(to_toml(load(_written(tmp_path / "there.toml", table))))
    write_events(run, [{"event": "update", "update": 1}])
    again = shlex.split(printed(tmp_path).splitlines()[0])
    assert again == first
    train = load(Path(again[2])).train
    assert (train.device, train.precision) == ("cuda:7", "bf16")


def _written(file: Path, table: dict[str, Any]) -> Path:
    file.write_text(tomli_w.dumps(table), encoding="utf-8")
    return file


def test_what_is_left_open_is_no_difference_between_runs(tmp_path: Path) -> None:
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=1
    )

    def cells(*settings: str, elsewhere: bool = False) -> list[Cell]:
        return grid.cells(load(None, [*LEFT_OPEN, *settings]), tmp_path, elsewhere=elsewhere)

    there = cells(elsewhere=True)
    manifest = about(there[0].config, toy_corpus(5))
    fingerprint = manifest.corpus.fingerprint
    refuse_unlike(cells(), there, manifest, fingerprint, tmp_path)
    refuse_unlike(there, cells(), manifest, fingerprint, tmp_path)
    with pytest.raises(UserError, match=r"train\.precision: 'fp32' there, 'bf16' now"):
        refuse_unlike(cells('train.precision="bf16"'), cells(), manifest, fingerprint, tmp_path)
