"""Runs as tasks of a Ray cluster end in the bytes of local ones, whoever is killed meanwhile."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.grids import LAST, bits, cells, trained
from normscope.engines.choosing import chosen
from normscope.engines.local import local
from normscope.engines.on_ray import OnRay
from normscope.engines.settings import RaySettings
from normscope.errors import UserError
from tiny import result

ray = pytest.importorskip("ray", reason='the engine ray needs Ray: pip install "normscope[ray]"')
# Ray leaves sockets and files to the collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two machines, as Ray sees it, of one core each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


def test_a_grid_has_the_bytes_of_a_local_one(cluster: Any, tmp_path: Path) -> None:
    here, there = cells(tmp_path / "local", 1), cells(tmp_path / "ray", 1)
    assert trained(here, local(2)) == ["finished"] * 4
    assert trained(there, OnRay(RaySettings(address=cluster.address))) == ["finished"] * 4
    assert bits(there) == bits(here)
    assert not list(tmp_path.rglob(".seen-by-all*"))


def test_a_failed_training_is_not_started_again(cluster: Any, tmp_path: Path) -> None:
    made = cells(tmp_path, 1)
    made[0].config_file.write_text("[model]\nwidht = 8\n", encoding="utf-8")
    assert trained(made[:1], OnRay(RaySettings(address=cluster.address))) == ["failed"]
    assert made[0].log_file.read_text().count("widht") == 1


def test_a_killed_worker_leaves_no_run_that_still_writes_and_the_run_goes_on(cluster: Any, tmp_path: Path) -> None:
    alone, made = cells(tmp_path / "alone", 1)[:1], cells(tmp_path / "ray", 1)[:1]
    assert trained(alone, local(1)) == ["finished"]
    engine, killed = OnRay(RaySettings(address=cluster.address)), list[int]()

    def kill(states: Any) -> None:
        if not killed and states[0].update > 3:
            killed.extend(_workers("run_job"))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    from normscope.studies.grids.pool import run_cells

    (state,) = run_cells(made, engine=engine, watch=kill)
    assert killed
    assert state.status == "finished"
    assert result(made[0].folder.path, LAST) == result(alone[0].folder.path, LAST)
    assert "stopped by SIGTERM" in made[0].log_file.read_text()


def _workers(task: str) -> list[int]:
    """Ray writes what a worker does into its title."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if title.startswith("ray::"):
                found.append(int(entry.name))
    return found


def test_without_a_cluster_it_says_how_to_start_one() -> None:
    program = "from normscope.engines.choosing import chosen\nchosen('ray')(1)"
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert "UserError: no Ray cluster at address 'auto'; start one" in done.stderr


def test_settings_are_those_of_the_engine() -> None:
    with pytest.raises(UserError, match="unknown key 'gpu'; did you mean 'gpus'"):
        chosen(None, {"name": "ray", "gpu": 1})
