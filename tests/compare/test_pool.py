"""The pool of runs as processes: who waits for whom, what a failure costs, and that no run outlives
its command.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from normscope.cli import main as cli
from normscope.cli.display import in_words
from normscope.compare import pool
from normscope.compare.grid import Cell, Grid
from normscope.compare.pool import run_cells
from normscope.compare.state import CellState
from normscope.engines import driving
from normscope.engines.alone import alone
from normscope.engines.local import OnThisMachine
from normscope.processes import surroundings
from normscope.signals import Interrupted
from tiny import tiny

Cells = Callable[..., list[Cell]]


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cells:
    """Runs of two updates whose training is a script for Python; the pool looks at them often."""
    for name in ("_POLL_SECONDS", "_WATCH_SECONDS"):
        monkeypatch.setattr(driving, name, 0.01)

    def make(script: str, seeds: int = 1) -> list[Cell]:
        monkeypatch.setattr(
            pool,
            "train_command",
            lambda cell, *_: ["-c", script, "train", str(cell.folder.metrics_file)],
        )
        grid = Grid(
            placements_and_warmups=(("pre-ln", 0),),
            peak_lrs=(1e-3,),
            optimizers=("adam",),
            seeds=seeds,
        )
        made = grid.cells(tiny("train.duration=2"), tmp_path)
        for cell in made:
            cell.folder.path.mkdir(parents=True)
            cell.log_file.parent.mkdir(exist_ok=True)
        return made

    return make


FINISH = (
    f"import sys; open(sys.argv[2], 'w').write('{json.dumps({'event': 'finished', 'update': 2})}' "
    "+ chr(10))"
)
ENDLESS = "import time; time.sleep(600)"


def quietly(states: list[CellState]) -> None:
    """A watch that shows nothing."""


def test_a_run_that_another_process_still_trains_is_waited_for(cells: Cells) -> None:
    held, free = cells(FINISH, seeds=2)
    seen: list[list[str]] = []
    lock = alone(held.folder.path, "comparison")
    lock.__enter__()

    def watch(states: list[CellState]) -> None:
        seen.append([state.status for state in states])
        if seen[-1] == ["waiting for another process", "finished"]:
            lock.__exit__(None, None, None)

    states = run_cells([held, free], engine=OnThisMachine(1), watch=watch)
    assert [state.status for state in states] == ["finished", "finished"]
    assert ["waiting for another process", "finished"] in seen


def test_a_failed_evaluation_leaves_the_training_and_says_what_failed(cells: Cells) -> None:
    (state,) = run_cells(
        cells(FINISH),
        engine=OnThisMachine(1),
        evaluate=lambda cell: [
            ["-c", "raise SystemExit('no memory')", "evaluate"],
            ["-c", "", "another"],
        ],
        watch=quietly,
    )
    assert (state.status, state.update) == ("finished", 2)
    assert state.message == "trained, but evaluate failed: no memory"


def test_a_failed_training_is_not_evaluated(cells: Cells) -> None:
    (state,) = run_cells(
        cells("raise SystemExit('no room')"),
        engine=OnThisMachine(1),
        evaluate=lambda cell: [["-c", "raise SystemExit('asked')", "evaluate"]],
        watch=quietly,
    )
    assert (state.status, state.message) == ("failed", "no room")


def test_a_process_that_cannot_be_started_is_a_failed_run(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cells(FINISH, seeds=2)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    states = run_cells(made, engine=OnThisMachine(1), watch=quietly)
    messages = {(state.status, state.message) for state in states}
    assert messages == {("failed", "its process could not be started: No such file or directory")}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_every_run_and_is_named(
    cells: Cells, number: signal.Signals, code: int
) -> None:
    last: list[CellState] = []

    def watch(states: list[CellState]) -> None:
        last[:] = states
        if all(state.status == "running" for state in states):
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted) as stop:
        run_cells(cells(ENDLESS, seeds=2), engine=OnThisMachine(2), watch=watch)
    assert stop.value.exit_code == code
    assert [state.status for state in last] == ["stopped", "stopped"]


@pytest.mark.parametrize("asked", [True, False])
def test_a_look_that_a_signal_interrupts_is_that_signal_and_no_failing_disk(
    cells: Cells, asked: bool
) -> None:
    """As a disk over FUSE may answer, and Python's `stat` does not ask again."""

    def watch(states: list[CellState]) -> None:
        if states[0].status == "running":
            if asked:
                os.kill(os.getpid(), signal.SIGTERM)
            raise InterruptedError(errno.EINTR, "Interrupted system call")

    with pytest.raises(Interrupted if asked else InterruptedError):
        run_cells(cells(ENDLESS), engine=OnThisMachine(1), watch=watch)


PARENT = """
import sys, time
from pathlib import Path
from normscope.engines.seam import Job, process_of
child = "import sys; from normscope.processes.surroundings import hold_lifeline; hold_lifeline()\\n"
child += "import signal, time; ended = lambda *_: sys.exit(open(sys.argv[1], 'w').close())\\n"
child += "signal.signal(signal.SIGTERM, ended)\\n"
child += "print('under way', flush=True); time.sleep(60)"
here, log = Path.cwd(), Path(sys.argv[2])
words = ["-c", child, sys.argv[1]]
job = Job(name="", words=words, configuration="", directory=here, folder=here, log=log, threads=1)
process = process_of(job, {})
while not log.stat().st_size:
    time.sleep(0.01)
print(process.pid, flush=True)
time.sleep(60)
"""


def test_no_run_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    """Its parent cannot say anything when SIGKILL ends it; the run is asked to stop as by SIGTERM
    all the same.
    """
    command = [sys.executable, "-c", PARENT, tmp_path / "saved", tmp_path / "log"]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, 0)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 60
    while not (tmp_path / "saved").exists():
        assert time.monotonic() < end, "the run trains on"
        time.sleep(0.01)


def test_every_command_holds_its_lifeline_and_passes_none_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched: list[Any] = []
    monkeypatch.setattr(surroundings, "_watch", watched.append)
    monkeypatch.setattr(sys, "argv", ["normscope", "--version"])
    for environment in ({}, surroundings.with_lifeline({})):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            cli.main()
    assert watched == [os.getpid()]
    assert surroundings.VARIABLE not in os.environ


HALTED = """
import os, pathlib, signal, sys, time
from normscope.processes.surroundings import hold
with hold(pathlib.Path(sys.argv[2]).parent):
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)
"""


def test_a_halted_run_is_named_and_ends_with_the_others(cells: Cells) -> None:
    made = cells(HALTED)
    seen: list[tuple[str, str]] = []

    def look(states: list[CellState]) -> None:
        """Let it go on, halt it again, and ask the command to end."""
        (state,) = states
        if not seen or seen[-1][0] != state.status:
            seen.append((state.status, in_words(state)))
            if state.status == "halted":
                pids.append(int(state.message.split()[1]))
                if len(pids) == 2:
                    signal.raise_signal(signal.SIGTERM)
                else:
                    os.kill(pids[0], signal.SIGCONT)
            elif state.status == "running" and pids:
                os.kill(pids[0], signal.SIGSTOP)

    pids: list[int] = []
    with pytest.raises(Interrupted):
        run_cells(made, engine=OnThisMachine(1), watch=look)
    assert [status for status, _ in seen] == ["running", "halted", "running", "halted", "stopped"]
    said = f"process {pids[0]} was halted by a signal; kill -CONT {pids[0]} lets it go on"
    assert [words.endswith(said) for _, words in seen] == [False, True, False, True, False]
    assert not Path(f"/proc/{pids[0]}").exists()
