"""A grid that one engine has begun is gone on with by any other, with the same bytes and the same report."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engines import slurm_node
from engines.asked import only_when_asked
from normscope.processes.surroundings import is_held

ray = pytest.importorskip("ray", reason="Ray is not installed")
_IGNORED = ("ResourceWarning", "DeprecationWarning", "FutureWarning")  # Ray leaves sockets and files to the collector
pytestmark = [
    only_when_asked,
    pytest.mark.skipif(bool(slurm_node.missing()), reason=slurm_node.missing() or "Slurm is here"),
    *(pytest.mark.filterwarnings(f"ignore::{name}") for name in _IGNORED),
]
CONFIG = """
[data]
toy_pairs = 300
max_tokens = 512
[model]
width = 16
ffn_width = 16
heads = 2
encoder_blocks = 1
decoder_blocks = 1
[train]
duration = 200
accumulation = 2
validate_every = 50
checkpoint_every = 20
threads = 1
device = "cpu"
"""
GRID = ("--placements", "post-ln,pre-ln", "--warmup-updates", "0,20", "--peak-lr", "1e-3")


def test_a_grid_wanders_from_here_to_ray_to_slurm(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    (tmp_path / "my.toml").write_text(CONFIG, encoding="utf-8")
    assert _compare(tmp_path, "still", "local").wait() == 0
    wandering = tmp_path / "wandering"
    _killed_at(_compare(tmp_path, "wandering", "local"), wandering, updates=60)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        _killed_at(_compare(tmp_path, "wandering", "ray", RAY_ADDRESS=cluster.address), wandering, updates=350)
    finally:
        cluster.shutdown()
    with slurm_node.running(tmp_path / "cluster", 2) as environment:
        assert _compare(tmp_path, "wandering", "slurm", **environment).wait() == 0, (tmp_path / "said.txt").read_text()
    for still in sorted((tmp_path / "still/runs").iterdir()):
        other = tmp_path / "wandering/runs" / still.name
        for file in ("metrics.jsonl", "checkpoints/step-200/model.safetensors"):
            assert (other / file).read_bytes() == (still / file).read_bytes()
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("still", "wandering")]
    assert len(results[1]["commands"]) == len(results[0]["commands"]) + 2  # the report names all three engines
    for result in results:
        del result["created"], result["commands"]
    assert results[0] == results[1]


def _compare(folder: Path, out: str, engine: str, **environment: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "normscope", "compare", "my.toml", *GRID, "--out", out, "--engine", engine]
    with (folder / "said.txt").open("ab") as said:
        return subprocess.Popen(command, cwd=folder, env=os.environ | environment, stdout=said, stderr=said)


def _killed_at(driver: "subprocess.Popen[bytes]", folder: Path, *, updates: int) -> None:
    """Kill it once all runs together are so far, and wait for its runs to save."""
    end = time.monotonic() + 900
    while sum(file.read_bytes().count(b'"event": "update"') for file in folder.glob("runs/*/metrics.jsonl")) < updates:
        assert driver.poll() is None, "it ended before it was killed"
        assert time.monotonic() < end
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    while any(map(is_held, folder.glob("runs/*"))):
        assert time.monotonic() < end
        time.sleep(0.05)
