"""Jobs in Slurm's queue, by submitit's executor for this machine: the bits of local runs, also of
one that is preempted; what is told to Slurm, and what is known of it.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.grids import bits, grid_cells, grid_of_24, trained, updates
from normscope.cli import main as cli
from normscope.compare.pool import job_of, train_command
from normscope.engines import slurm
from normscope.engines.choosing import SlurmSettings, engine_settings, minutes_of
from normscope.engines.local import OnThisMachine
from normscope.engines.slurm import OnSlurm, QueuedTask
from normscope.errors import UserError
from tiny import options

pytest.importorskip("submitit", reason="submitit is not installed")
pytestmark = pytest.mark.filterwarnings(
    # submitit leaves its processes to the collector.
    "ignore:subprocess .* is still running:ResourceWarning"
)
HERE = SlurmSettings(cluster="local")


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(slurm, "_GONE_SECONDS", 2.0)


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def children(process: int) -> list[int]:
    return [
        int(word)
        for task in Path(f"/proc/{process}/task").iterdir()
        for word in (task / "children").read_text().split()
    ]


def test_a_grid_has_the_bits_of_local_runs_also_of_one_that_is_preempted(tmp_path: Path) -> None:
    """The first run is told, as by Slurm, that its time is nearly up: it saves, takes its place
    again and goes on. Not saved, it would begin again at its newest checkpoint.
    """
    here, there = grid_cells(tmp_path / "local"), grid_cells(tmp_path / "slurm")
    assert trained(here, OnThisMachine(1)) == ["finished"] * 2
    engine = OnSlurm(HERE)
    futures = [
        engine.start(job_of(cell, train_command(cell, None, "/dev/stdin"))) for cell in there
    ]
    until(lambda: futures[0].code() is None and updates(there[:1]) > 3)
    (controller, *_) = (int(number) for number in engine._jobs)
    (task,) = children(controller)
    for process in (*children(task), task):  # Slurm tells every process of a job
        os.kill(process, signal.SIGUSR2)
    until(lambda: all(future.code() is not None for future in futures))
    assert [future.code() for future in futures] == [0, 0]
    said = there[0].log_file.read_text()
    assert said.count("stopped by SIGTERM after update") == 1
    assert said.count("finished after 60 updates") == 1
    assert bits(there) == bits(here)


@pytest.mark.skipif("NORMSCOPE_CLUSTER" not in os.environ, reason="make test-cluster asks for it")
def test_a_grid_of_24_has_the_bytes_of_a_local_one(
    local_24: dict[str, tuple[str, bytes]], tmp_path: Path
) -> None:
    there, engine = grid_of_24(tmp_path), OnSlurm(HERE)
    engine.at_once = 4  # submitit would begin them all
    assert trained(there, engine) == ["finished"] * 24
    assert bits(there) == local_24


def test_a_training_that_fails_is_told_by_its_last_line_and_is_not_tried_again(
    tmp_path: Path,
) -> None:
    made = grid_cells(tmp_path)
    made[0].folder.path.mkdir(parents=True)
    (made[0].folder.path / "mine.txt").write_text("mine")
    assert trained(made, OnSlurm(HERE)) == ["failed", "finished"]
    assert made[0].log_file.read_text().count("is not empty and is not a run") == 1


def test_a_job_that_left_the_queue_without_a_word_is_submitted_by_the_same_command(
    tmp_path: Path,
) -> None:
    (cell, _) = grid_cells(tmp_path)
    job = job_of(cell, train_command(cell, None, "/dev/stdin"))
    engine = OnSlurm(HERE)
    future = engine.start(job)
    until(lambda: future.code() is None and updates([cell]) > 3)
    for number in engine._jobs:
        for task in children(int(number)):
            os.kill(task, signal.SIGKILL)
    until(lambda: future.code() is not None)
    assert future.code() == 75
    until(lambda: "stopped by SIGTERM" in cell.log_file.read_text())
    assert trained([cell], OnSlurm(HERE)) == ["finished"]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for the commands of Slurm: `squeue` prints the file that is returned."""
    folder, queue = tmp_path / "bin", tmp_path / "queue"
    folder.mkdir()
    queue.write_text("")
    scripts = {
        "squeue": f"cat {queue}",
        "sbatch": f"echo 7_0 >> {queue}; echo 7_1 >> {queue}; echo Submitted batch job 7",
        "srun": "false",
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return queue


def test_a_job_that_an_earlier_command_has_in_the_queue_is_not_submitted_twice(
    tmp_path: Path, commands: Path
) -> None:
    made = grid_cells(tmp_path / "out")
    jobs = [job_of(cell, train_command(cell)) for cell in made]
    for _ in range(2):
        engine = OnSlurm(SlurmSettings())
        futures = [engine.start(job) for job in jobs]
        assert [future.code() for future in futures] == [None, None]
        assert commands.read_text().split() == ["7_0", "7_1"]
    # One has ended while nobody looked; the other was asked to end, and is in the queue again.
    slurm._keep_code(jobs[0], 0)
    slurm._keep_code(jobs[1], 143)
    commands.write_text("7_1\n")
    until(lambda: futures[0].code() == 0)
    assert futures[1].code() is None
    commands.write_text("")
    until(lambda: futures[1].code() == 143)


def test_what_is_asked_for_stands_in_the_script_and_the_rest_is_left_to_the_cluster() -> None:
    settings = SlurmSettings(
        partition="gpu",
        time="1-12",
        mem="16G",
        gres="gpu:a100:1",
        gpus_per_run=2,
        parallelism=3,
        constraint="h100",
        setup=("module load cuda",),
    )
    text = slurm.script(settings, 24, 4, Path("/shared/out/slurm"))
    lines = text.splitlines()
    for asked in (
        "array=0-23%3",
        "partition=gpu",
        "time=2160",
        "mem=16G",
        "gres=gpu:a100:1",
        "gpus-per-node=2",
        "constraint=h100",
        "cpus-per-task=4",
        "signal=USR2@120",
        "open-mode=append",
    ):
        assert f"#SBATCH --{asked}" in lines
    assert lines.index("module load cuda") < next(
        at for at, line in enumerate(lines) if line.startswith("srun ")
    )
    bare = slurm.script(SlurmSettings(), 2, 1, Path("/shared/out/slurm"))
    for left_open in ("partition", "mem", "gres", "gpus-per-node", "account", "qos"):
        assert f"--{left_open}" not in bare


def test_a_dry_run_prints_the_script_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--dry-run", "--engine", "slurm", "--engine-set", "partition=gpu"]
    words += ["--placements", "pre-ln,post-ln", "--warmup-updates", "0", "--seeds", "2"]
    words += ["--out", str(tmp_path / "out"), *options()]
    monkeypatch.setattr(sys, "argv", ["normscope", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith("#!/bin/bash\n")
    assert "#SBATCH --array=0-3%4" in printed
    assert "#SBATCH --partition=gpu" in printed
    assert subprocess.run(["bash", "-n"], input=printed, text=True, check=False).returncode == 0
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 4
    assert not (tmp_path / "out" / "runs").exists()


def test_without_slurm_it_says_so_before_a_folder_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    words = ["compare", "--out", str(tmp_path / "grid"), "--engine", "slurm", *options()]
    monkeypatch.setattr(sys, "argv", ["normscope", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "calls sbatch, squeue, srun, and this machine has no such" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"partition": "a b"}, "partition is one word without blanks, got 'a b'"),
        ({"gpus_per_run": -1}, "gpus_per_run must be 0 or more, got -1"),
        ({"time": "soon"}, "time is minutes, hours:minutes:seconds or days-hours"),
        ({"setup": ["a\nb"]}, "one of them holds a line break"),
        ({"array_size": 0}, "array_size must be at least 1, got 0"),
        ({"gpus": 1}, "unknown key 'gpus'"),
    ],
)
def test_a_mistake_names_what_is_allowed(given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        engine_settings("slurm", given)


@pytest.mark.parametrize(
    ("settings", "nodes", "megabytes"),
    [
        (SlurmSettings(mem="16G"), "8000", 16 * 1024),
        (SlurmSettings(mem="500"), "8000", 500),
        (SlurmSettings(), "8000\n64000+", 64000),
        (SlurmSettings(mem="0"), "8000", 8000),
        (SlurmSettings(), "1", None),
        (SlurmSettings(gpus_per_run=1), "8000", None),
    ],
)
def test_the_largest_machine_is_the_one_that_a_job_asks_for_or_may_get(
    settings: SlurmSettings, nodes: str, megabytes: int | None, commands: Path
) -> None:
    sinfo = commands.with_name("bin") / "sinfo"
    sinfo.write_text(f"#!/bin/sh\nprintf '{nodes}\\n'\n")
    sinfo.chmod(0o755)
    found = OnSlurm(settings).largest_machine()
    assert (None if found is None else found.memory_bytes / 2**20) == megabytes


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("90", 90), ("2:30", 3), ("4:00:00", 240), ("4:00:01", 241), ("1-12", 2160), ("0-0:5", 5)],
)
def test_times_are_read_as_slurm_writes_them(text: str, minutes: int) -> None:
    assert minutes_of(text) == minutes


def test_a_submitted_task_holds_no_process(tmp_path: Path) -> None:
    """What submitit pickles again when a task is preempted."""
    (cell, _) = grid_cells(tmp_path)
    (tmp_path / "slurm").mkdir()
    task = QueuedTask(job_of(cell, ["-c", "pass"]))
    assert task() == 0
    again = task.checkpoint().function
    assert pickle.loads(pickle.dumps(again)).carried.job == task.carried.job
