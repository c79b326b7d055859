"""Runs as tasks of a Ray cluster end in the bytes of local ones, whoever is killed meanwhile."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.asked import only_when_asked
from engines.grids import LAST, bits, cells, trained
from normscope.compare.grid import Cell
from normscope.engines.choosing import local
from normscope.engines.ray import OnRay
from normscope.engines.seam import RaySettings
from tasks.test_own import MODEL

ray = pytest.importorskip("ray", reason="Ray is not installed")
_IGNORED = ("ResourceWarning", "DeprecationWarning", "FutureWarning")  # Ray leaves sockets and files to the collector
pytestmark = [only_when_asked, pytest.mark.filterwarnings(*(f"ignore::{name}" for name in _IGNORED))]
ROUNDS = int(os.environ.get("NORMSCOPE_FAULT_ROUNDS", "1"))
DEADLINE_SECONDS = 900
NODE = {"num_cpus": 1, "include_dashboard": False}
PATIENT = {
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 20,
    "health_check_timeout_ms": 60_000,
    "worker_niceness": 0,
}
"""A dead machine refuses twenty questions in ten seconds; a busy one, which is not dead, may take a minute for each.
Beside other work a task at Ray's own niceness of 15 gets nothing done."""


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two machines, as Ray sees it, of one core each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args=NODE | {"_system_config": PATIENT})
    made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


def engine_of(cluster: Any) -> OnRay:
    return OnRay(RaySettings(address=cluster.address, retries=20))


def test_a_grid_has_the_bytes_of_a_local_one_and_a_failed_training_is_not_tried_again(
    cluster: Any, tmp_path: Path
) -> None:
    here, there = cells(tmp_path / "local", 1), cells(tmp_path / "ray", 1)
    there[0].config_file.write_text("[model]\nwidht = 8\n", encoding="utf-8")
    assert trained(here, local(2)) == ["finished"] * 4
    assert trained(there, engine_of(cluster)) == ["failed", *["finished"] * 3]
    assert there[0].log_file.read_text().count("widht") == 1
    assert bits(there[1:]) == bits(here[1:])
    assert not list(tmp_path.rglob(".seen-by-all*"))


def test_a_model_of_ones_own_has_the_same_bytes_in_one_process_in_two_and_on_a_cluster(
    cluster: Any, tmp_path: Path
) -> None:
    (tmp_path / "my_model.py").write_text(MODEL.replace("DROPOUT", "0.1"), encoding="utf-8")
    grids = {name: cells(tmp_path / name, 1, "train.threads=1", own=tmp_path / "my_model.py") for name in "abc"}
    for name, engine in {"a": local(1), "b": local(2), "c": engine_of(cluster)}.items():
        assert trained(grids[name], engine) == ["finished"] * 4
    assert bits(grids["a"]) == bits(grids["b"]) == bits(grids["c"])


def test_whoever_is_killed_the_bytes_are_those_of_an_undisturbed_grid(cluster: Any, tmp_path: Path) -> None:
    """A worker, a machine at once or after notice, or the driver, whose command is then given again."""
    here = cells(tmp_path / "local", 2)
    assert trained(here, local(2)) == ["finished"] * 8
    for number in range(ROUNDS):
        there, chance = cells(tmp_path / f"ray-{number}", 2), random.Random(number)
        faults = [_kill_a_worker, _kill_a_machine, _remove_a_machine, None]
        chance.shuffle(faults)
        driver, begun = _driver(cluster, there), time.monotonic()
        # By how far the runs are, and not by a clock, so that a busy machine has its faults in the midst of them too.
        for fault, goal in zip(faults, sorted(chance.sample(range(8 * LAST), len(faults))), strict=True):
            while _updates(there) < goal and driver.poll() is None:
                assert time.monotonic() - begun < DEADLINE_SECONDS
                time.sleep(0.05)
            time.sleep(chance.uniform(0.0, 2.0))
            if driver.poll() is None and fault is not None:
                fault(cluster)
            elif driver.poll() is None:
                driver.kill()
                driver.wait()
                driver = _driver(cluster, there)
        while driver.poll() is None:
            assert time.monotonic() - begun < DEADLINE_SECONDS
            time.sleep(0.1)
        assert driver.returncode == 0, (there[0].folder.path.parents[1] / "driver.txt").read_text()
        said = {cell.name: cell.log_file.read_text() for cell in there}
        assert bits(there) == bits(here)
        assert not any("is being trained by another process" in text for text in said.values())


DRIVER = """
import sys
from pathlib import Path
from engines.asked import only_when_asked
from engines.grids import cells, trained
from normscope.engines.ray import OnRay
from normscope.engines.seam import RaySettings
ends = trained(cells(Path(sys.argv[1]), 2), OnRay(RaySettings(address=sys.argv[2], retries=20)))
sys.exit(ends != ["finished"] * 8)
"""


def _updates(made: list[Cell]) -> int:
    """Of all runs together."""
    return sum(
        cell.folder.metrics_file.read_bytes().count(b'"event": "update"')
        for cell in made
        if cell.folder.metrics_file.is_file()
    )


def _driver(cluster: Any, made: list[Cell]) -> "subprocess.Popen[bytes]":
    folder = made[0].folder.path.parents[1]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", DRIVER, str(folder), cluster.address]
    with (folder / "driver.txt").open("ab") as said:
        return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stdout=said, stderr=said)


def _kill_a_worker(cluster: Any) -> None:
    for pid in _titled("ray::post-ln", "ray::pre-ln")[:1]:
        os.kill(pid, signal.SIGKILL)


def _kill_a_machine(cluster: Any) -> None:
    _replace(cluster, graceful=False)


def _remove_a_machine(cluster: Any) -> None:
    _replace(cluster, graceful=True)


def _replace(cluster: Any, *, graceful: bool) -> None:
    gone = cluster.list_all_nodes()[-1]
    cluster.remove_node(gone, allow_graceful=graceful)
    cluster.add_node(num_cpus=1)


def _titled(*beginnings: str) -> list[int]:
    """Processes by their titles, into which Ray writes the name of a worker's task."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cmdline").read_bytes().decode(errors="replace").startswith(beginnings):
                    found.append(int(entry.name))
    return found


def test_without_a_cluster_it_says_how_to_start_one(tmp_path: Path) -> None:
    program = "from normscope.engines.choosing import chosen\nchosen('ray')(1)"
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["RAY_TMPDIR"] = str(tmp_path)  # where Ray writes which clusters there are
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert "UserError: no Ray cluster at address 'auto'; start one" in done.stderr
