"""A process ends with the one that started it, however that ends; and several of a launcher train
no run.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from normscope.processes.surroundings import launched_together, rank_of_environment

CHILD = """
import time
from normscope.processes.surroundings import hold_lifeline
hold_lifeline()
print("here", flush=True)
time.sleep(600)
"""
PARENT = """
import os, subprocess, sys, time
from normscope.processes.surroundings import with_lifeline
os.environ.update(with_lifeline({}))
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def lives(pid: int) -> bool:
    """Whether it has not ended; one that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_of_a_launcher_ends_where_the_launcher_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.2)
    assert lives(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 240
    while lives(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    try:
        assert not lives(child)
    finally:
        if lives(child):
            os.kill(child, signal.SIGKILL)


TORCHRUN = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def test_a_process_of_a_launcher_knows_how_many_they_are_and_which_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert launched_together() == 2
    assert rank_of_environment() == 1


@pytest.mark.parametrize("changes", [{"WORLD_SIZE": "1", "RANK": "0"}, {"MASTER_ADDR": None}])
def test_one_process_of_a_launcher_and_another_programs_rank_are_let_through(
    changes: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (TORCHRUN | changes).items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert launched_together() == 1
    assert rank_of_environment() == 0
