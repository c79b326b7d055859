"""Runs as tasks of a real Ray cluster of two machines, as Ray sees it, end in the bytes of local
ones.

`NORMSCOPE_CLUSTER=1`, which `make test-cluster` sets, asks for those that start a cluster.
"""

import contextlib
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.grids import (
    are_of_two,
    bits,
    cells_of_two,
    grid_cells,
    grid_of_24,
    trained,
    updates,
)
from normscope.compare.grid import Cell
from normscope.compare.pool import engine_for
from normscope.engines.choosing import RaySettings, engine_settings
from normscope.engines.local import OnThisMachine
from normscope.engines.ray import OnRay
from normscope.engines.sharing import SharedFolder, SharedPlace
from normscope.errors import UserError

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [
    # Ray leaves sockets, files and processes to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
on_a_cluster = pytest.mark.skipif(
    "NORMSCOPE_CLUSTER" not in os.environ, reason="make test-cluster asks for it"
)
DEADLINE_SECONDS = 1500
NODE = {"num_cpus": 1, "include_dashboard": False}
PATIENT = {
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 20,
    "health_check_timeout_ms": 60_000,
    "worker_niceness": 0,
}
"""A dead machine refuses twenty questions in ten seconds; a busy one, which is not dead, may take a
minute for each. Beside other work a task at Ray's own niceness of 15 gets nothing done."""


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two machines of one core each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args=NODE | {"_system_config": PATIENT})
    made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


@on_a_cluster
def test_runs_of_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    # A run takes the cores of all its processes, and all are on one machine.
    of_two_cores = NODE | {"num_cpus": 2, "_system_config": PATIENT}
    made = Cluster(initialize_head=True, head_node_args=of_two_cores)
    try:
        there = cells_of_two(tmp_path / "ray")
        settings = RaySettings(address=made.address, processes_per_run=2)
        engine = engine_for(there[0].config, settings, 0)
        assert trained(there, engine) == ["finished"] * 2
    finally:
        ray.shutdown()
        made.shutdown()
    are_of_two(there, tmp_path / "local")


def engine_of(cluster: Any) -> OnRay:
    return OnRay(RaySettings(address=cluster.address, retries=20))


@on_a_cluster
def test_a_grid_has_the_bytes_of_a_local_one_and_a_failed_training_is_not_tried_again(
    cluster: Any, tmp_path: Path
) -> None:
    here, there = grid_cells(tmp_path / "local"), grid_cells(tmp_path / "ray", seeds=2)
    there[-1].folder.path.mkdir(parents=True)
    (there[-1].folder.path / "mine.txt").write_text("mine")
    assert trained(here, OnThisMachine(1)) == ["finished"] * 2
    assert trained(there, engine_of(cluster)) == [*["finished"] * 3, "failed"]
    assert there[-1].log_file.read_text().count("is not empty and is not a run") == 1
    assert bits(there[:2]) == bits(here)
    assert not list(tmp_path.rglob(".written-by-a-task-*"))


@on_a_cluster
def test_a_grid_of_24_has_the_bytes_of_a_local_one_whoever_is_killed(
    cluster: Any, local_24: dict[str, tuple[str, bytes]], tmp_path: Path
) -> None:
    """A worker, then a machine, then the driver, whose command is given again."""
    there = grid_of_24(tmp_path / "ray")
    driver = _driver(cluster, tmp_path / "ray")
    for share, fault in ((0.2, _kill_a_worker), (0.4, _kill_a_machine), (0.6, None)):
        _until_trained(there, share, driver)
        if fault is not None:
            fault(cluster)
            continue
        driver.kill()
        driver.wait()
        finished = [cell for cell in there if cell.folder.is_finished]
        before = [cell.folder.metrics_file.stat().st_mtime_ns for cell in finished]
        driver = _driver(cluster, tmp_path / "ray")
    _until_trained(there, math.inf, driver)
    assert driver.returncode == 0, (tmp_path / "ray" / "driver.txt").read_text()
    assert bits(there) == local_24
    # What had finished was not run again.
    assert before == [cell.folder.metrics_file.stat().st_mtime_ns for cell in finished]


PRIVATE = """
import hashlib, json, sys
from pathlib import Path
from engines.grids import bits, grid_cells, trained
from normscope.engines.choosing import RaySettings
from normscope.engines.ray import OnRay
out, address, storage, report = sys.argv[1:]
cells = grid_cells(Path(out) / "grid", seeds=2)
settings = RaySettings(address=address, retries=20, storage=storage)
ends = trained(cells, OnRay(settings))
found = {name: [one, hashlib.sha256(two).hexdigest()] for name, (one, two) in bits(cells).items()}
Path(report).write_text(json.dumps([ends, found]))
"""
"""A driver whose disk, which is one of memory of its own, no task sees."""


@on_a_cluster
@pytest.mark.skipif(os.geteuid() != 0, reason="a disk that others do not see is mounted by root")
def test_without_a_shared_folder_a_killed_driver_goes_on_from_a_storage_on_another_machine(
    cluster: Any, tmp_path: Path
) -> None:
    here = grid_cells(tmp_path / "local", seeds=2)
    assert trained(here, OnThisMachine(2)) == ["finished"] * 4
    kept, report = tmp_path / "kept", tmp_path / "report.json"
    (tmp_path / "private").mkdir()

    def driver() -> "subprocess.Popen[bytes]":
        return _on_a_disk_of_its_own(
            tmp_path / "private", cluster.address, f"file://{kept}", str(report)
        )

    first = driver()
    seals = kept / "seals"
    _until(lambda: len(list(seals.rglob("*.json"))) >= 2 or first.poll() is not None)
    first.kill()
    first.wait()
    before = {seal: seal.stat().st_mtime_ns for seal in seals.rglob("*.json")}
    assert 2 <= len(before) < 4
    assert driver().wait() == 0, (tmp_path / "private.txt").read_text()
    ends, found = json.loads(report.read_text())
    assert ends == ["finished"] * 4
    wanted = {
        name: [one, hashlib.sha256(two).hexdigest()] for name, (one, two) in bits(here).items()
    }
    assert found == wanted
    assert {seal: seal.stat().st_mtime_ns for seal in before} == before
    assert list((tmp_path / "private").iterdir()) == []


def _on_a_disk_of_its_own(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    """A driver that alone sees a new, empty disk at the folder."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    mounted = 'mount -t tmpfs none "$0" && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mounted, str(folder)]
    command += [sys.executable, "-c", PRIVATE, str(folder), *words]
    with folder.with_suffix(".txt").open("ab") as said:
        return subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": path}, stdout=said, stderr=said
        )


def _until(happened: Callable[[], object]) -> None:
    begun = time.monotonic()
    while not happened():
        assert time.monotonic() - begun < DEADLINE_SECONDS
        time.sleep(0.05)


DRIVER = """
import sys
from pathlib import Path
from engines.grids import grid_of_24, trained
from normscope.engines.choosing import RaySettings
from normscope.engines.ray import OnRay
cells = grid_of_24(Path(sys.argv[1]))
ends = trained(cells, OnRay(RaySettings(address=sys.argv[2], retries=20)))
sys.exit(ends != ["finished"] * 24)
"""


def _driver(cluster: Any, folder: Path) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", DRIVER, str(folder), cluster.address]
    with (folder / "driver.txt").open("ab") as said:
        return subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": path}, stdout=said, stderr=said
        )


def _until_trained(cells: list[Cell], share: float, driver: "subprocess.Popen[bytes]") -> None:
    """Waits until so much of the grid is trained, by its updates and not by a clock, or until the
    driver has ended.
    """
    _until(lambda: updates(cells) >= share * 60 * len(cells) or driver.poll() is not None)


def _kill_a_worker(cluster: Any) -> None:
    for pid in _titled("ray::post-ln", "ray::pre-ln")[:1]:
        os.kill(pid, signal.SIGKILL)


def _kill_a_machine(cluster: Any) -> None:
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
    cluster.add_node(num_cpus=1)


def _titled(*beginnings: str) -> list[int]:
    """Processes by their titles, into which Ray writes the name of a worker's task."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                title = (entry / "cmdline").read_bytes().decode(errors="replace")
                if title.startswith(beginnings):
                    found.append(int(entry.name))
    return found


@on_a_cluster
def test_a_folder_that_a_machine_does_not_share_is_told_in_one_line(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the task's arrives in the folder that the driver looks into."""
    made = grid_cells(tmp_path)
    engine = engine_of(cluster)
    other = tmp_path / "disk of another machine"
    other.mkdir()
    monkeypatch.setattr(
        engine, "_on_node", lambda node, asked: _Elsewhere(engine, node, asked, other)
    )
    with pytest.raises(UserError, match=r"is not the same folder on .*: give --out a folder"):
        trained(made, engine)
    assert not any(cell.folder.path.exists() for cell in made)


class _Elsewhere:
    """A machine whose disk has another folder under the name."""

    def __init__(self, engine: OnRay, node: Any, asked: Any, folder: Path) -> None:
        self.task, self.folder = OnRay._on_node(engine, node, asked), folder

    def remote(self, place: SharedPlace) -> Any:
        return self.task.remote(SharedFolder(self.folder))


@on_a_cluster
def test_a_storage_that_is_another_on_each_machine_is_told_in_one_line(
    cluster: Any, tmp_path: Path
) -> None:
    """As the memory of a process is."""
    made = grid_cells(tmp_path)
    engine = OnRay(RaySettings(address=cluster.address, storage="memory://grids"))
    with pytest.raises(UserError, match=r"storage memory://grids is not the same place on .*: giv"):
        trained(made, engine)


@on_a_cluster
def test_what_no_machine_has_is_refused_before_anything_waits_for_it(
    cluster: Any, tmp_path: Path
) -> None:
    made = grid_cells(tmp_path)
    engine = OnRay(RaySettings(address=cluster.address))
    (line, *_) = Path("/proc/meminfo").read_text().splitlines()
    found = engine.largest_machine()
    assert found is not None
    assert found.memory_bytes == int(line.split()[1]) * 1024
    engine = OnRay(RaySettings(address=cluster.address, gpus_per_run=1))
    assert engine.largest_machine() is None
    with pytest.raises(UserError, match=r"a run takes 1 CPUs and 1 GPUs, and no machine of the"):
        trained(made, engine)


def test_without_a_cluster_it_says_how_to_start_one(tmp_path: Path) -> None:
    program = (
        "from normscope.engines.choosing import RaySettings\n"
        "from normscope.engines.ray import OnRay\nOnRay(RaySettings())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["RAY_TMPDIR"] = str(tmp_path)  # where Ray writes which clusters there are
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert "UserError: no Ray cluster at address 'auto': start one" in done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cpu_per_run": 1}, "unknown key 'cpu_per_run'; did you mean 'cpus_per_run'"),
        ({"gpus_per_run": -0.5}, "gpus_per_run must be 0 or more, got -0.5"),
    ],
)
def test_a_mistake_names_what_is_allowed(given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        engine_settings("ray", given)
