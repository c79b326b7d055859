"""Kill a run again and again with SIGKILL, in forked children, and compare what comes of it with a
run left alone.

To be called in a process of its own: see `forked.call`. Forking it for every run saves the seconds
that importing torch takes. Half of the promise is about kills at any moment, so a child is killed
after a random time; the other half about kills while files change, so a child kills itself at a
random file operation of its own (`sys.addaudithook` sees opening, renaming, removing …), half of
the times one on a file that is not yet whole.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from normscope.runs import run
from tiny import RUN, leftovers, result, tiny

UPDATES = 30
FILE_OPERATIONS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")


def child(folder: Path, *, kill_at_operation: int | None = None, on: str = "") -> int:
    """Start the run in a forked child; returns its process id.

    on: what is in the path of every file operation that counts.
    """
    pid = os.fork()
    if pid:
        return pid
    seen = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if (
            event in FILE_OPERATIONS
            and arguments
            and str(folder) in (path := str(arguments[0]))
            and on in path
        ):
            seen += 1
            if seen == kill_at_operation:
                os.kill(os.getpid(), signal.SIGKILL)

    if kill_at_operation is not None:
        sys.addaudithook(count)
    code = 1
    try:
        run.train_run(tiny(*RUN), folder)
        code = 0
    finally:
        os._exit(code)


def ended(pid: int) -> bool:
    """Wait for a child; True where it came to its end, False where it was killed. Anything else is
    a failure.
    """
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, f"a run died of signal {os.WTERMSIG(status)}"
        return False
    assert os.WEXITSTATUS(status) == 0, "a run resumed after a kill failed; see the traceback above"
    return True


def kill_runs(place: Path, seed: int, timed: int, at_files: int) -> None:
    """Kill `timed` children at a random time and `at_files` at a file operation; prints a report as
    JSON.
    """
    torch.set_num_threads(1)
    run.train_run(tiny(*RUN), place / "alone")
    wanted = result(place / "alone", UPDATES)
    began = time.monotonic()
    assert ended(child(place / "forked"))
    duration = time.monotonic() - began
    assert result(place / "forked", UPDATES) == wanted

    dice = random.Random(seed)
    kinds = ["time"] * timed + ["file"] * (at_files // 2) + ["saving"] * (at_files - at_files // 2)
    dice.shuffle(kinds)
    runs, killed, killed_while_saving, updates_at_kill = (
        0,
        {"time": 0, "file": 0, "saving": 0},
        0,
        [],
    )
    done = False
    while kinds or not done:
        folder = place / f"killed-{runs}"
        if not kinds:
            done = ended(child(folder))
        elif kinds[0] == "time":
            pid = child(folder)
            # A run is killed several times on its way, so a third of its time is far enough to
            # reach every part of it.
            time.sleep(dice.uniform(0, duration / 3))
            os.kill(pid, signal.SIGKILL)
            done = ended(pid)
        elif kinds[0] == "file":
            done = ended(child(folder, kill_at_operation=dice.randint(1, 80)))
        else:
            done = ended(child(folder, kill_at_operation=dice.randint(2, 12), on=".unfinished-"))
        if done:
            assert result(folder, UPDATES) == wanted, (
                f"{folder} is not as the run that was left alone"
            )
            assert not leftovers(folder)
            runs += 1
        else:
            killed[kinds.pop(0)] += 1
            killed_while_saving += bool(leftovers(folder))
            metrics = folder / "metrics.jsonl"
            updates_at_kill.append(
                metrics.read_bytes().count(b'"event": "update"') if metrics.exists() else 0
            )
    print(
        json.dumps(
            {
                "runs": runs,
                "killed_while_saving": killed_while_saving,
                "at": updates_at_kill,
                **killed,
            }
        )
    )
