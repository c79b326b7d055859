"""Runs as tasks of arrays of a real Slurm of one machine end in the bytes of local ones, whatever
the cluster does to them meanwhile.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines import slurm_node
from engines.grids import (
    LAST,
    are_of_two,
    bits,
    cells_of_two,
    grid_cells,
    grid_of_24,
    trained,
)
from normscope.compare.pool import engine_for, run_cells
from normscope.compare.state import CellState
from normscope.engines import slurm as slurm_engine
from normscope.engines.choosing import SlurmSettings
from normscope.engines.local import OnThisMachine
from normscope.errors import UserError
from normscope.signals import Interrupted

pytest.importorskip("submitit", reason="submitit is not installed")
pytestmark = [
    pytest.mark.skipif(
        "NORMSCOPE_CLUSTER" not in os.environ, reason="make test-cluster asks for it"
    ),
    pytest.mark.skipif(bool(slurm_node.missing()), reason=slurm_node.missing() or "Slurm is here"),
]
SLOW = "train.accumulation=24"
"""So that a run is there for as long as it takes Slurm to do something to it."""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cluster of two cores."""
    folder = tmp_path_factory.mktemp("slurm")
    with slurm_node.running(folder, 2) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


def queued() -> list[str]:
    """Returns the jobs of the queue, by their numbers."""
    command = ["squeue", "--noheader", "--array", "--format=%i", "--states=R,PD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def on_slurm() -> slurm_engine.OnSlurm:
    return slurm_engine.OnSlurm(SlurmSettings(time="30"))


@pytest.mark.usefixtures("slurm")
def test_a_grid_has_the_bytes_of_a_local_one_and_a_failed_training_says_so(tmp_path: Path) -> None:
    here, there = grid_cells(tmp_path / "local"), grid_cells(tmp_path / "slurm", seeds=2)
    there[-1].folder.path.mkdir(parents=True)
    (there[-1].folder.path / "mine.txt").write_text("mine")
    assert trained(here, OnThisMachine(1)) == ["finished"] * 2
    assert trained(there, on_slurm()) == [*["finished"] * 3, "failed"]
    assert bits(there[:2]) == bits(here)
    assert "is not empty and is not a run" in there[-1].log_file.read_text()


@pytest.mark.usefixtures("slurm")
def test_runs_of_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    there = cells_of_two(tmp_path / "slurm")
    engine = engine_for(there[0].config, SlurmSettings(time="30", processes_per_run=2), 0)
    assert trained(there, engine) == ["finished"] * 2
    are_of_two(there, tmp_path / "local")


@pytest.mark.usefixtures("slurm")
def test_a_grid_of_24_has_the_bytes_of_a_local_one_with_a_run_requeued_and_one_cancelled(
    local_24: dict[str, tuple[str, bytes]], tmp_path: Path
) -> None:
    """The one that is cancelled has not finished, and the same command submits it again."""
    there, engine = grid_of_24(tmp_path), on_slurm()
    commands, disturbed = [["scontrol", "requeue"], ["scancel"]], dict[str, list[str]]()

    def disturb(states: list[CellState]) -> None:
        numbers = {future.job.name: future.number for future in engine._open}
        for state in states:
            name = state.cell.name
            # One that is in the middle, so that it does not end before it is told.
            if commands and name not in disturbed and 1 < state.update < LAST / 2:
                disturbed[name] = commands.pop(0)
                subprocess.run([*disturbed[name], numbers[name]], check=True)

    first = run_cells(there, engine=engine, watch=disturb)
    cancelled = [name for name, command in disturbed.items() if command == ["scancel"]]
    assert len(disturbed) == 2
    assert [state.cell.name for state in first if state.status != "finished"] == cancelled
    assert trained(there, on_slurm()) == ["finished"] * 24
    assert bits(there) == local_24


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("disturbance", [["scancel", "--signal=USR2"], ["scontrol", "requeue"]])
def test_what_slurm_does_to_a_job_loses_nothing(disturbance: list[str], tmp_path: Path) -> None:
    """It is told that its time is nearly up, or queued again."""
    here = grid_cells(tmp_path / "local", SLOW)[:1]
    there = grid_cells(tmp_path / "slurm", SLOW)[:1]
    assert trained(here, OnThisMachine(1)) == ["finished"]
    done: list[str] = []

    def disturb(states: list[CellState]) -> None:
        if states[0].update > 1 and not done:
            done.append(queued()[0])
            subprocess.run([*disturbance, done[0]], check=True)

    (state,) = run_cells(there, engine=on_slurm(), watch=disturb)
    assert done
    assert state.status == "finished"
    assert "stopped by SIGTERM after update" in there[0].log_file.read_text()
    assert bits(there) == bits(here)


@pytest.mark.usefixtures("slurm")
def test_a_cancelled_job_has_saved_and_the_same_command_finishes_it(tmp_path: Path) -> None:
    (cell,) = grid_cells(tmp_path, SLOW)[:1]
    cancelled: list[str] = []

    def cancel(states: list[CellState]) -> None:
        if states[0].update > 1 and not cancelled:
            cancelled.extend(queued())
            subprocess.run(["scancel", *cancelled], check=True)

    (state,) = run_cells([cell], engine=on_slurm(), watch=cancel)
    assert state.status == "failed"
    assert list(cell.folder.checkpoints.glob("step-*"))
    assert trained([cell], on_slurm()) == ["finished"]


@pytest.mark.usefixtures("slurm")
def test_a_signal_to_the_driver_leaves_jobs_in_the_queue_and_none_is_submitted_twice(
    tmp_path: Path,
) -> None:
    made, sent = grid_cells(tmp_path, SLOW)[:1], list[str]()

    def interrupt(states: list[CellState]) -> None:
        if states[0].update > 1 and not sent:
            sent.extend(queued())
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="runs in the queue go on"):
        run_cells(made, engine=on_slurm(), watch=interrupt)
    assert queued() == sent
    seen: set[str] = set()
    states = run_cells(made, engine=on_slurm(), watch=lambda states: seen.update(queued()))
    assert [state.status for state in states] == ["finished"]
    assert seen <= set(sent)


@pytest.mark.usefixtures("slurm")
def test_what_sbatch_refuses_is_said_in_one_line(tmp_path: Path) -> None:
    engine = slurm_engine.OnSlurm(SlurmSettings(partition="nowhere"))
    with pytest.raises(UserError, match=r"Slurm did not take the jobs: .*invalid partition"):
        trained(grid_cells(tmp_path), engine)
