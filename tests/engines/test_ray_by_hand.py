"""The manual's own commands, on a Ray cluster that `ray start` has made of two machines, as Ray
sees them: a grid of 24, of which a machine and the command are killed.

`NORMSCOPE_CLUSTER=1`, which `make test-cluster` sets, asks for it.
"""

import contextlib
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.grids import LENGTH, RATES, SEEDS, bits, named_cells, updates
from normscope.compare.grid import Cell
from tiny import options

pytest.importorskip("ray", reason="Ray is not installed")
from ray.util import get_node_ip_address

pytestmark = pytest.mark.skipif(
    "NORMSCOPE_CLUSTER" not in os.environ, reason="make test-cluster asks for it"
)
DEADLINE_SECONDS = 1500
PATIENT = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "20",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_worker_niceness": "0",
}
"""A dead machine refuses twenty questions in ten seconds; a busy one may take its time."""
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
"""As the manual has it, but for the place where the token is kept."""
START = "from ray.scripts.scripts import main; main()"
"""The command `ray`, of this interpreter's Ray."""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def machine(log: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """One that `ray start` has joined with its words, of one core."""
    command = [sys.executable, "-c", START, "start", "--block", "--num-cpus=1", *words]
    with log.open("ab") as said:
        started = subprocess.Popen(
            command,
            env=os.environ | PATIENT | TOKEN,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        yield started
    finally:
        lose(started)


def lose(started: "subprocess.Popen[bytes]") -> None:
    """A machine loses its power: all of its processes end at once."""
    for process in family(started.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    started.wait()


def family(process: int) -> list[int]:
    """A process and all that it and they have started."""
    found = [process]
    for one in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += [int(word) for word in (task / "children").read_text().split()]
    return found


def compare(out: Path, address: str, token: dict[str, str]) -> "subprocess.Popen[bytes]":
    """The manual's command."""
    words = ["--placements", "post-ln,pre-ln", "--warmup-updates", "0", "--seeds", "4"]
    words += ["--peak-lr", "1e-3,2e-3,3e-3", "--out", str(out), *options(*LENGTH)]
    words += ["--engine", "ray", "--engine-set", f"address={address}"]
    with out.with_suffix(".txt").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "normscope", "compare", *words],
            env=os.environ | token,
            stdout=said,
            stderr=said,
        )


def until_trained(cells: list[Cell], share: float, driver: "subprocess.Popen[bytes]") -> None:
    """Waits until so much of the grid is trained, or until the command has ended."""
    begun = time.monotonic()
    while updates(cells) < share * 60 * len(cells) and driver.poll() is None:
        assert time.monotonic() - begun < DEADLINE_SECONDS
        time.sleep(0.05)


def test_a_grid_of_24_has_the_bytes_of_a_local_one_whoever_is_killed(
    local_24: dict[str, tuple[str, bytes]], tmp_path: Path
) -> None:
    out, port = tmp_path / "grid", free_port()
    there = named_cells(out, seeds=SEEDS, rates=RATES)
    log, address = tmp_path / "ray.txt", f"{get_node_ip_address()}:{port}"
    head = ["--head", f"--port={port}", "--include-dashboard=false"]
    other = [f"--address={address}"]
    with machine(log, *head), machine(log, *other) as lost:
        refused = compare(tmp_path / "refused", address, {"RAY_AUTH_MODE": "disabled"})
        assert refused.wait() == 2
        (line,) = (tmp_path / "refused.txt").read_text().splitlines()[-1:]
        assert f"the Ray cluster at address '{address}' asks for a token: set RAY_AUTH_" in line
        driver = compare(out, address, TOKEN)
        until_trained(there, 0.3, driver)
        lose(lost)
        until_trained(there, 0.5, driver)
        driver.kill()
        driver.wait()
        finished = [cell.folder.metrics_file for cell in there if cell.folder.is_finished]
        before = [file.stat().st_mtime_ns for file in finished]
        with machine(log, *other):
            driver = compare(out, address, TOKEN)
            until_trained(there, math.inf, driver)
    said = out.with_suffix(".txt").read_text()
    assert driver.returncode == 0, said
    assert bits(there) == local_24
    assert (out / "report.html").is_file()
    # What had finished was not run again.
    assert finished
    assert [file.stat().st_mtime_ns for file in finished] == before
