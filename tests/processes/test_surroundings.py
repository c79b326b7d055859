"""A process ends with the one that started it, however that ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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
