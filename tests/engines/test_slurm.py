"""Runs as tasks of Slurm arrays end in the bytes of local ones, whatever the cluster does to them meanwhile."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines import slurm_node
from engines.asked import only_when_asked
from engines.grids import bits, cells, trained
from normscope.compare.grid import Cell
from normscope.compare.pool import run_cells
from normscope.compare.state import CellState
from normscope.engines.choosing import local
from normscope.engines.seam import SlurmSettings
from normscope.engines.slurm import OnSlurm
from normscope.errors import UserError
from normscope.signals import Interrupted

pytestmark = [
    only_when_asked,
    pytest.mark.skipif(bool(slurm_node.missing()), reason=slurm_node.missing() or "Slurm is here"),
]
LONG = "train.duration=4000"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cluster of two cores."""
    with slurm_node.running(tmp_path_factory.mktemp("slurm"), 2) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


def test_a_grid_has_the_bytes_of_a_local_one_and_a_failed_training_says_so(slurm: None, tmp_path: Path) -> None:
    here, there = cells(tmp_path / "local", 1), cells(tmp_path / "slurm", 1)
    there[0].config_file.write_text("[model]\nwidht = 8\n", encoding="utf-8")
    assert trained(here, local(2)) == ["finished"] * 4
    assert trained(there, OnSlurm(SlurmSettings(time="10"))) == ["failed", *["finished"] * 3]
    assert bits(there[1:]) == bits(here[1:])
    assert "widht" in there[0].log_file.read_text()


@pytest.mark.parametrize("disturbance", [["scancel", "--batch", "--signal=TERM"], ["scontrol", "requeue"]])
def test_what_slurm_does_to_a_job_loses_nothing(disturbance: list[str], slurm: None, tmp_path: Path) -> None:
    here, there = cells(tmp_path / "local", 1)[:1], cells(tmp_path / "slurm", 1)[:1]
    assert trained(here, local(1)) == ["finished"]
    done: list[str] = []

    def disturb(states: list[CellState[Cell]]) -> None:
        if states[0].update > 5 and not done:
            done.append(_tasks()[0])
            subprocess.run([*disturbance, done[0]], check=True)

    (state,) = run_cells(there, engine=OnSlurm(SlurmSettings()), watch=disturb)
    assert done
    assert state.status == "finished"
    assert len(there[0].log_file.read_text().split(": update ")) > 2
    assert bits(there) == bits(here)


def test_a_cancelled_job_has_saved_and_counts_as_ended(slurm: None, tmp_path: Path) -> None:
    (cell,) = cells(tmp_path, 1, LONG)[:1]

    def cancel(states: list[CellState[Cell]]) -> None:
        if states[0].update > 5 and _tasks():
            subprocess.run(["scancel", *_tasks()], check=True)

    (state,) = run_cells([cell], engine=OnSlurm(SlurmSettings()), watch=cancel)
    assert state.status == "failed"
    assert "stopped by SIGTERM after update" in state.message
    assert list(cell.folder.checkpoints.glob("step-*"))


def test_jobs_go_on_without_the_driver_and_are_not_submitted_twice(slurm: None, tmp_path: Path) -> None:
    made = cells(tmp_path, 1)

    class Gone(Exception):
        pass

    def leave(states: list[CellState[Cell]]) -> None:
        if _tasks():
            raise Gone

    with pytest.raises(Gone):
        run_cells(made, engine=OnSlurm(SlurmSettings()), watch=leave)
    before = _tasks()
    assert len(before) == 4
    seen: list[str] = []
    states = run_cells(made, engine=OnSlurm(SlurmSettings()), watch=lambda states: seen.extend(_tasks()))
    assert [state.status for state in states] == ["finished"] * 4
    assert set(seen) <= set(before)


def test_what_sbatch_refuses_is_said_in_one_line(slurm: None, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sbatch did not take .*array-.*invalid partition specified: nowhere"):
        trained(cells(tmp_path, 1), OnSlurm(SlurmSettings(partition="nowhere")))


def _tasks() -> list[str]:
    command = ["squeue", "--noheader", "--array", "--format=%i", "--states=R,PD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_signal_to_the_driver_leaves_the_jobs_in_their_queue(slurm: None, tmp_path: Path) -> None:
    made, sent = cells(tmp_path, 1, LONG)[:1], list[int]()

    def interrupt(states: list[CellState[Cell]]) -> None:
        if states[0].update > 2 and not sent:
            sent.append(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="SIGINT while its jobs stay in their queue"):
        run_cells(made, engine=OnSlurm(SlurmSettings()), watch=interrupt)
    assert len(_tasks()) == 1
    subprocess.run(["scancel", *_tasks()], check=True)
