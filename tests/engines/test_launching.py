"""Runs of a grid that several processes train together, each under torch's launcher."""

import os
import shlex
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from torch.distributed.launcher.api import LaunchConfig

from engines.grids import trained
from normscope.compare.compare import prepare, run_comparison
from normscope.compare.cost import told_cost
from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.pool import PoolOptions, engine_for, job_of, train_command
from normscope.engines import launching
from normscope.engines.carried import CarriedJob
from normscope.engines.choosing import LocalSettings, RaySettings, SlurmSettings
from normscope.engines.launching import GIVEN, together
from normscope.engines.seam import Engine, Future
from normscope.engines.slurm import parameters
from normscope.errors import UserError
from normscope.finetune.cells import search_space
from normscope.finetune.search import SearchOptions
from normscope.processes.surroundings import is_held
from tiny import tiny

TIMEOUT = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
TWO = LocalSettings(processes_per_run=2)
LENGTH = ("train.accumulation=4", "train.validate_every=4", "train.checkpoint_every=4")
BRIEF = (*LENGTH, "data.max_tokens=128", "train.duration=12")
REPLICAS = 'train.parallel="replicas"'
SOME = "train.duration=120"
LONG = "train.duration=100000"
PATIENCE_SECONDS = 120


def grid_cells(folder: Path, *settings: str) -> list[Cell]:
    """Runs of two placements, which nobody has written down."""
    grid = Grid(
        placements_and_warmups=(("post-ln", 0), ("pre-ln", 0)),
        peak_lrs=(1e-3,),
        optimizers=("adam",),
        seeds=1,
    )
    return grid.cells(tiny(*BRIEF, *settings), folder)


def written(folder: Path, *settings: str) -> list[Cell]:
    """The same, written down."""
    made = grid_cells(folder, *settings)
    write_configs(made)
    return made


def engine_of_two(cell: Cell) -> Engine:
    return engine_for(cell.config, TWO, 2)


def losses(cell: Cell) -> list[float]:
    """Of all updates and validations."""
    found = [event.get("nll_nats") for event in cell.folder.events()]
    return [float(loss) for loss in found if isinstance(loss, float)]


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def started(engine: Engine, cell: Cell) -> Future:
    """Has two processes train a run, and waits until they do."""
    words = together(train_command(cell, None, GIVEN), 2)
    future = engine.start(job_of(cell, words))
    until(lambda: future.code() is not None or _has_losses(cell))
    assert future.code() is None, cell.log_file.read_text()
    return future


def _has_losses(cell: Cell) -> bool:
    file = cell.folder.metrics_file
    return file.exists() and b'"nll_nats"' in file.read_bytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    """The losses of the runs of a grid that one process each has trained."""
    made = written(tmp_path_factory.mktemp("alone"))
    assert trained(made, engine_for(made[0].config, LocalSettings(), 2)) == ["finished"] * 2
    return [losses(cell) for cell in made]


def test_a_grid_of_runs_of_two_processes_has_the_losses_of_one_process_each(
    alone: list[list[float]], tmp_path: Path
) -> None:
    made = written(tmp_path, REPLICAS)
    assert trained(made, engine_of_two(made[0])) == ["finished"] * 2
    for cell, of_one in zip(made, alone, strict=True):
        assert cell.folder.environment()["processes"] == 2
        assert len(of_one) == 15
        assert losses(cell) == pytest.approx(of_one, rel=0, abs=1e-6)


def test_a_run_of_two_processes_that_was_asked_to_end_has_saved_and_goes_on(
    tmp_path: Path,
) -> None:
    whole, *_ = written(tmp_path / "alone", SOME)
    assert trained([whole], engine_for(whole.config, LocalSettings(), 1)) == ["finished"]
    cell, *_ = written(tmp_path / "two", SOME, 'train.parallel="shards"')
    with closing(engine_of_two(cell)) as engine:
        future = started(engine, cell)
        engine.stop([future])
        assert future.code() == 128 + signal.SIGTERM
    assert not is_held(cell.folder.path)
    assert cell.log_file.read_text().count("stopped by SIGTERM after update") == 1
    assert 0 < len(losses(cell)) < len(losses(whole)) == 150
    assert trained([cell], engine_of_two(cell)) == ["finished"]
    assert losses(cell) == pytest.approx(losses(whole), rel=0, abs=1e-5)


def test_a_process_that_is_killed_fails_the_run_with_a_line_that_names_it(tmp_path: Path) -> None:
    cell, *_ = written(tmp_path, REPLICAS, LONG)
    with closing(engine_of_two(cell)) as engine:
        future = started(engine, cell)
        second = process_of_rank(1, cell)
        os.kill(second, signal.SIGKILL)
        until(lambda: future.code() is not None)
    assert future.code() == 1
    last = cell.log_file.read_text().splitlines()[-1]
    assert last.startswith(f"stopped: process 1 of 2 ({second} on ")


def test_a_process_that_is_halted_fails_the_run_as_soon(tmp_path: Path) -> None:
    """It is not waited for as long as one that saves."""
    cell, *_ = written(tmp_path, REPLICAS, LONG, "train.silent_seconds=3")
    with closing(engine_of_two(cell)) as engine:
        future = started(engine, cell)
        first = process_of_rank(0, cell)
        os.kill(first, signal.SIGSTOP)
        until(lambda: future.code() is not None)
    assert future.code() == 1
    last = cell.log_file.read_text().splitlines()[-1]
    assert last.startswith(f"stopped: process 0 of 2 ({first} on ")
    assert "has not answered for" in last
    assert not is_held(cell.folder.path)


def process_of_rank(rank: int, cell: Cell) -> int:
    """The process of this machine that is of this rank in the training of the run."""
    for folder in Path("/proc").iterdir():
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"RANK={rank}".encode() in environment and str(cell.folder.path).encode() in words:
            return int(folder.name)
    raise AssertionError(f"no process of rank {rank}")


def test_a_worker_of_a_cluster_has_such_a_run_saved_when_it_is_to_go(tmp_path: Path) -> None:
    """As tasks of Ray and jobs of Slurm do, on neither."""
    cell, *_ = written(tmp_path, REPLICAS, LONG)
    carried = CarriedJob(job_of(cell, together(train_command(cell, None, GIVEN), 2)))
    codes: list[int] = []
    worker = threading.Thread(target=lambda: codes.append(carried.run()))
    worker.start()
    until(lambda: codes or _has_losses(cell))
    carried.save()
    worker.join()
    assert codes == [128 + signal.SIGTERM], cell.log_file.read_text()
    assert cell.log_file.read_text().count("stopped by SIGTERM after update") == 1


@pytest.mark.skipif(
    "shutdown_timeout" not in LaunchConfig.__dataclass_fields__,
    reason="this torch gives all processes 30 seconds",
)
@pytest.mark.parametrize(("said", "seconds"), [(None, 600), ("7", 7)])
def test_processes_have_ten_minutes_to_save_unless_the_user_says_otherwise(
    said: str | None, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[LaunchConfig] = []

    def launch(config: LaunchConfig, program: str) -> Callable[..., None]:
        asked.append(config)
        return lambda *words: None

    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", launch)
    monkeypatch.setattr("logging.disable", lambda level: None)
    monkeypatch.setattr("os.environ", dict(os.environ))
    os.environ.pop(TIMEOUT, None)
    if said is not None:
        os.environ[TIMEOUT] = said
    assert launching._ended(3, ["python"]) == 0
    assert [(config.nproc_per_node, config.shutdown_timeout) for config in asked] == [(3, seconds)]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([], 'starts 2 processes for one run, and train.parallel is "none": set it to "replicas"'),
        ([REPLICAS, "train.accumulation=1"], "train.accumulation = 1 batches for 2 processes"),
        ([REPLICAS, "train.compile=true"], "train.compile is for one process"),
    ],
)
def test_runs_that_two_processes_cannot_train_are_refused_before_anything_is_written(
    settings: list[str], said: str, tmp_path: Path
) -> None:
    out = tmp_path / "grid"
    made = grid_cells(out, *settings)
    for asked in (
        lambda: run_comparison(made, out, PoolOptions(command="normscope compare", engine=TWO)),
        lambda: prepare(made, out, engine=TWO),
    ):
        with pytest.raises(UserError) as refused:
            asked()
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)
        assert not out.exists()


def test_what_is_printed_for_a_run_of_two_processes_starts_them(tmp_path: Path) -> None:
    made = grid_cells(tmp_path, REPLICAS)
    first, _ = prepare(made, tmp_path, engine=TWO)
    launcher, command = first.split(" -- ")
    assert launcher == "torchrun --standalone --nproc-per-node 2 -m normscope"
    words = shlex.split(command)
    assert words == ["train", str(made[0].config_file), "--run", str(made[0].folder.path)]
    assert made[0].config_file.is_file()


def test_the_processes_of_a_run_share_the_memory_of_a_machine(tmp_path: Path) -> None:
    left = [(cell, 12) for cell in grid_cells(tmp_path, REPLICAS)]
    needed = told_cost(left, LocalSettings(), engine_for(left[0][0].config, LocalSettings(), 1))
    assert " GB of " in needed
    most = LocalSettings(processes_per_run=1_000_000)
    with pytest.raises(UserError, match="cannot be trained here"):
        told_cost(left, most, engine_for(left[0][0].config, most, 1))


def test_a_run_takes_the_cores_of_all_its_processes(tmp_path: Path) -> None:
    config = replace(tiny(), train=replace(tiny().train, threads=2))
    one, three = LocalSettings(), LocalSettings(processes_per_run=3)
    most = engine_for(config, one, 0).at_once or 0
    assert engine_for(config, three, 0).at_once == max(1, most // 3)
    assert parameters(SlurmSettings(processes_per_run=3), 2)["cpus_per_task"] == 6
    assert parameters(SlurmSettings(processes_per_run=3, cpus_per_run=4), 2)["cpus_per_task"] == 4
    assert RaySettings(processes_per_run=3).cpus_per_run == 0


def test_a_fine_tuning_of_several_processes_is_refused() -> None:
    with pytest.raises(UserError, match="processes_per_run = 2: a fine-tuning is trained by one"):
        SearchOptions(space=search_space("small"), engine=TWO)
