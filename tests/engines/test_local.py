"""Jobs of this machine: a worker's forks have the bits of a process from nothing, and its
isolation; each sees the GPU that it is given.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.pool import job_of, run_cells, train_command
from normscope.engines import local
from normscope.engines.choosing import LocalSettings, Needs, engine_settings
from normscope.engines.local import OnThisMachine
from normscope.engines.opening import opened
from normscope.engines.seam import Future, Job, process_of
from normscope.engines.worker import Worker
from normscope.errors import UserError
from normscope.finetune import pool as finetuning
from tiny import SHORT, result, tiny

MakeJob = Callable[..., Job]
PATIENCE_SECONDS = 120


def grid_cells(folder: Path, *settings: str) -> list[Cell]:
    """Two runs, written down."""
    grid = Grid(
        placements_and_warmups=(("post-ln", 0), ("pre-ln", 0)),
        peak_lrs=(1e-3,),
        optimizers=("adam",),
        seeds=1,
    )
    made = grid.cells(tiny(*SHORT, *settings), folder)
    write_configs(made)
    return made


def training(cell: Cell) -> Job:
    return job_of(cell, train_command(cell, None, "/dev/stdin"))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker(threads=1)
    yield made
    made.close()


@pytest.fixture
def job(tmp_path: Path) -> MakeJob:
    """A job of a script, or of one of our commands."""

    def make(*words: str, name: str = "one", threads: int = 1) -> Job:
        return Job(
            name=name,
            words=words,
            configuration="",
            directory=tmp_path,
            folder=tmp_path / name,
            log=tmp_path / f"{name}.txt",
            threads=threads,
        )

    return make


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def test_what_a_worker_forks_has_the_bits_of_a_process_from_nothing(
    worker: Worker, tmp_path: Path
) -> None:
    """One run after the other in the same worker, so that whatever the first left would show."""
    fresh, forked = grid_cells(tmp_path / "fresh"), grid_cells(tmp_path / "forked")
    for cell in fresh:
        assert process_of(training(cell), {}).wait() == 0
    for cell in forked:
        assert worker.start(training(cell), {}).wait() == 0
    for one, other in zip(fresh, forked, strict=True):
        assert result(one.folder.path, 12) == result(other.folder.path, 12)
        assert one.folder.environment() | {"run": ""} == other.folder.environment() | {"run": ""}


def test_a_run_that_is_killed_takes_nothing_else_with_it(worker: Worker, tmp_path: Path) -> None:
    first, second = grid_cells(tmp_path, "train.duration=100000")
    killed, other = (worker.start(training(cell), {}) for cell in (first, second))
    until(lambda: first.folder.metrics_file.exists() and second.folder.metrics_file.exists())
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert other.poll() is None
    other.terminate()
    assert other.wait() == 128 + signal.SIGTERM
    assert "stopped by SIGTERM after update" in second.log_file.read_text()
    assert worker.lives


def test_a_command_that_fails_is_told_as_one_from_nothing(worker: Worker, job: MakeJob) -> None:
    forked, fresh = job("-m", "normscope", "trian"), job("-m", "normscope", "trian", name="other")
    assert worker.start(forked, {}).wait() == process_of(fresh, {}).wait() == 2
    assert forked.log.read_text() == fresh.log.read_text()
    assert "trian" in forked.log.read_text()


def test_runs_of_a_worker_that_is_killed_save_and_end_and_the_next_has_another(
    tmp_path: Path,
) -> None:
    first, second = grid_cells(tmp_path, "train.duration=100000")
    engine = OnThisMachine(2)
    future = engine.start(training(first))
    until(first.folder.metrics_file.exists)
    engine._workers[1, ()]._process.kill()
    until(lambda: future.code() is not None)
    assert future.code() == -signal.SIGKILL
    until(lambda: "stopped by SIGTERM after update" in first.log_file.read_text())
    again = engine.start(training(second))
    until(second.folder.metrics_file.exists)
    engine.stop([again])
    engine.close()
    assert again.code() == 128 + signal.SIGTERM


DRIVER = """
import sys, time
from pathlib import Path
from engines.test_local import grid_cells, training
from normscope.engines.local import OnThisMachine
engine = OnThisMachine(1)
first, _ = grid_cells(Path(sys.argv[1]), "train.duration=100000")
future = engine.start(training(first))
while not first.folder.metrics_file.exists():
    assert future.code() is None, first.log_file.read_text()
    time.sleep(0.02)
print("under way", flush=True)
time.sleep(600)
"""


def test_no_run_of_a_worker_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    driver = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE
    )
    assert driver.stdout is not None
    with driver.stdout:
        assert driver.stdout.readline() == b"under way\n"
        driver.kill()
        driver.wait()
    (log,) = (tmp_path / "logs").iterdir()
    until(lambda: "stopped by SIGTERM after update" in log.read_text())


def test_a_run_of_other_threads_has_a_worker_of_its_own(tmp_path: Path) -> None:
    one, two = grid_cells(tmp_path / "one"), grid_cells(tmp_path / "two", "train.threads=2")
    assert [training(cell).threads for cell in (one[0], two[0])] == [1, 2]
    engine = OnThisMachine(2)
    states = run_cells([one[0], two[0]], engine=engine, watch=lambda states: None)
    assert [state.status for state in states] == ["finished", "finished"]
    assert sorted(engine._workers) == [(1, ()), (2, ())]
    assert [cell.folder.environment()["threads"] for cell in (one[0], two[0])] == [1, 2]
    engine.close()


def seen(log: Path) -> str:
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    return log.read_text().strip()


WAITING = """
import os, time
print(os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
time.sleep(600)
"""


def test_runs_are_spread_over_the_gpus_and_take_the_place_of_one_that_has_ended(
    job: MakeJob,
) -> None:
    engine = OnThisMachine(4, ["3", "GPU-5a"])
    jobs = [job("-c", WAITING, name=str(number)) for number in range(5)]
    futures: list[Future] = [engine.start(one) for one in jobs[:4]]
    assert [seen(one.log) for one in jobs[:4]] == ["3", "GPU-5a", "3", "GPU-5a"]
    engine.stop(futures[1:2])
    assert futures[1].code() is not None
    futures.append(engine.start(jobs[4]))
    assert seen(jobs[4].log) == "GPU-5a"
    engine.stop(futures)


@pytest.mark.parametrize(
    ("device", "share", "processes", "at_once", "devices"),
    [
        ("cpu", 0.0, 0, 6, []),
        ("cpu", 0.0, 5, 5, []),
        ("cuda:0", 0.0, 0, 3, ["0", "1", "2"]),
        ("cuda:0", 0.5, 0, 6, ["0", "1", "2"]),
        ("cuda:0", 0.1, 0, 30, ["0", "1", "2"]),
        ("cuda:0", 0.5, 4, 4, ["0", "1", "2"]),
        ("cuda:0", 0.0, 16, 16, ["0", "1", "2"]),
        ("cuda:1", 0.0, 0, 1, []),
        ("cuda:1", 0.25, 0, 4, []),
    ],
)
def test_so_many_runs_train_at_a_time_as_there_are_cores_or_gpus(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    share: float,
    processes: int,
    at_once: int,
    devices: list[str],
) -> None:
    monkeypatch.setattr(local, "visible_devices", lambda: ["0", "1", "2"])
    needs = Needs(threads=2, device=device, cores=12)
    engine = opened(LocalSettings(gpus_per_run=share), needs, processes)
    assert isinstance(engine, OnThisMachine)
    assert (engine.at_once, engine.devices) == (at_once, devices)


def test_each_process_of_a_run_has_a_gpu_of_its_own(
    monkeypatch: pytest.MonkeyPatch, job: MakeJob
) -> None:
    monkeypatch.setattr(local, "visible_devices", lambda: ["0", "1", "2", "3", "4"])
    needs = Needs(threads=2, device="cuda:0", cores=12)
    engine = opened(LocalSettings(processes_per_run=2), needs, 0)
    assert engine.at_once == 2
    jobs = [job("-c", WAITING, name=str(number)) for number in range(3)]
    futures = [engine.start(one) for one in jobs[:2]]
    assert [seen(one.log) for one in jobs[:2]] == ["0,1", "2,3"]
    engine.stop(futures[:1])
    futures.append(engine.start(jobs[2]))
    assert seen(jobs[2].log) == "4,0"
    engine.stop(futures)
    with pytest.raises(UserError, match="processes_per_run = 6: each process of a run has a GPU"):
        opened(LocalSettings(processes_per_run=6), needs, 0)


def test_the_gpus_are_those_that_the_user_lets_this_process_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert local.visible_devices() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 7")
    assert local.visible_devices() == ["5", "7"]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("dask", {}, r"--engine \(engine in Python\) is one of local"),
        ("local", {"gpu_per_run": 1.0}, "unknown key 'gpu_per_run'; did you mean 'gpus_per_run'"),
        ("local", {"gpus_per_run": 2.0}, "a share of one GPU, above 0 and at most 1, got 2"),
        ("local", {"processes_per_run": 0}, "processes_per_run must be at least 1, got 0"),
        ("ray", {"processes_per_run": 0}, "processes_per_run must be at least 1, got 0"),
        ("slurm", {"processes_per_run": -1}, "processes_per_run must be at least 1, got -1"),
        (
            "local",
            {"processes_per_run": 2, "gpus_per_run": 0.5},
            "processes_per_run = 2 processes of a run has a GPU of its own; leave one",
        ),
    ],
)
def test_a_mistake_names_what_is_allowed(name: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        engine_settings(name, given)


UNASKED = """
import importlib, sys
import torch

def asked(*given):
    raise SystemExit("a GPU is asked for")

for name in ("is_available", "device_count", "current_device", "init", "_lazy_init"):
    setattr(torch.cuda, name, asked)
from normscope.engines import forking
for name in (*forking._NEEDED, *sys.argv[1:]):
    importlib.import_module(name)
"""


def test_a_worker_asks_no_gpu_for_anything_as_a_forked_process_could_use_none_then() -> None:
    asked = [sys.executable, "-c", UNASKED]
    modules = [name for name in finetuning._MODULES if find_spec(name.partition(".")[0])]
    done = subprocess.run([*asked, *modules], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_jobs_that_are_called_off_while_libraries_are_imported_end_at_once(
    job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import never ends, so that this would wait for ever if it were waited for."""
    (tmp_path / "endless.py").write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    made = Worker(threads=1, modules=["endless"])
    first, second = (
        made.start(job("-m", "normscope", "placements", name=name), {}) for name in ("a", "b")
    )
    first.terminate()
    # The other is to go on: nothing is killed for the sake of one.
    assert first.poll() is None
    assert made.lives
    second.send_signal(signal.SIGINT)
    assert first.wait() == 128 + signal.SIGTERM
    assert second.wait() == 128 + signal.SIGINT
    assert not made.lives
    made.close()


def test_a_job_that_has_begun_is_asked_and_not_killed(worker: Worker, tmp_path: Path) -> None:
    (cell, _) = grid_cells(tmp_path, "train.duration=100000")
    running = worker.start(training(cell), {})
    until(cell.folder.metrics_file.exists)
    running.terminate()
    assert running.wait() == 128 + signal.SIGTERM
    assert "stopped by SIGTERM after update" in cell.log_file.read_text()
    assert worker.lives
