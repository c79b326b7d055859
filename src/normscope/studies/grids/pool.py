"""Train many runs as local processes, a few at a time, and tell what each is doing."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import IO, Generic

from ...optim import parse_duration
from ...signals import Interrupted, StopRequest
from ...tasks.run_config import RunConfig
from ...train.device import available_cores
from .lifeline import with_lifeline
from .locks import is_held
from .state import C, CellState, PoolCell

_POLL_SECONDS = 0.5

Commands = Callable[[C], list[list[str]]]


@dataclass(slots=True)
class _Job(Generic[C]):
    state: CellState[C]
    commands: list[list[str]]
    process: subprocess.Popen[bytes] | None = None
    log: IO[bytes] | None = None
    running: list[str] = field(default_factory=list)

    @property
    def trains(self) -> bool:
        """Whether the command that runs is the training, and not an evaluation."""
        return "train" in self.running


def train_command(cell: PoolCell) -> list[str]:
    """What trains the cell, as words after the Python interpreter."""
    return ["-m", "normscope", "train", str(cell.config_file), "--run", str(cell.folder.path)]


def at_once(processes: int, config: RunConfig) -> int:
    """Runs at a time: `processes`, or for 0 as many as the cores have room for, given the threads of one."""
    threads = config.train.threads
    return processes or max(1, available_cores() // (threads if threads != "auto" else 1))


def stated_updates(cell: PoolCell) -> int | None:
    """The updates of a cell's whole run; None where its duration is in epochs."""
    number, unit = parse_duration(cell.config.train.duration)
    return int(number) if unit == "updates" else None


def run_cells(
    cells: Iterable[C],
    *,
    processes: int,
    evaluate: Commands[C] | None = None,
    updates_of: Callable[[C], int | None] = stated_updates,
    watch: Callable[[list[CellState[C]]], None],
) -> list[CellState[C]]:
    """Train every cell that is not over, `processes` at a time. A cell that another process trains is waited for.

    evaluate: commands to run after a cell's training, as words after the Python interpreter. updates_of: the updates
    of a cell's whole run. watch: called twice a second with the states of all cells. Raises Interrupted after a signal
    that asks for an end, when every run under way has saved. Should this process be killed, the runs save and end too.
    """
    states = [CellState(cell, updates_of(cell)) for cell in cells]
    for state in states:
        state.read_new_events()
    waiting = [job for job in (_job(state, evaluate) for state in states) if job.commands]
    running: list[_Job[C]] = []
    try:
        with StopRequest() as stop:
            while (waiting or running) and stop.signal_number is None:
                for job in _free(waiting, processes - len(running)):
                    waiting.remove(job)
                    running.append(job)
                    _start(job)
                watch(states)
                time.sleep(_POLL_SECONDS)
                running = [job for job in running if _advance(job)]
            if stop.signal_number is not None:
                _stop(running)
                watch(states)
                raise Interrupted(stop.signal_number, "after every run under way has saved")
    finally:
        _stop(running)
    watch(states)
    return states


def _job(state: CellState[C], evaluate: Commands[C] | None) -> _Job[C]:
    commands = [] if state.over else [train_command(state.cell)]
    if evaluate is not None and state.status != "non-finite":
        commands += evaluate(state.cell)
    return _Job(state, commands)


def _free(waiting: Iterable[_Job[C]], count: int) -> list[_Job[C]]:
    """The first `count` jobs whose run no other process trains, such as one whose parent was killed and that saves."""

    def free(job: _Job[C]) -> bool:
        held = is_held(job.state.cell.folder.path)
        if held:
            job.state.status = "waiting for another process"
            job.state.read_new_events()
        return not held

    return list(itertools.islice(filter(free, waiting), count))


def _start(job: _Job[C]) -> None:
    """Start the job's next command, its output appended to the cell's log, in threads of its own."""
    threads = str(job.state.cell.config.train.threads)
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    job.running = job.commands.pop(0)
    job.state.status = "running" if job.trains else "translating"
    try:
        job.log = job.state.cell.log_file.open("ab")
        # A session of its own, so that Ctrl-C reaches the runs through us alone and each can save.
        job.process = subprocess.Popen(
            [sys.executable, *job.running],
            stdout=job.log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            env=with_lifeline(environment),
            start_new_session=True,
        )
    except OSError as error:
        _close(job)
        _fail(job, f"its process could not be started: {error.strerror}")


def _advance(job: _Job[C]) -> bool:
    """Look at a running job and start its next command; False when it is over."""
    if job.process is None:
        return False
    job.state.read_new_events()
    code = job.process.poll()
    if code is None:
        return True
    _close(job)
    job.state.read_new_events()
    if job.state.status == "non-finite":
        return False
    if code != 0:
        killed = f"killed by {signal.Signals(-code).name}; the last it said: " if code < 0 else ""
        _fail(job, killed + _last_line(job.state.cell))
    elif job.trains:
        job.state.status = "finished"
    if job.state.status == "failed" or not job.commands:
        job.state.status = "failed" if job.state.status == "failed" else "finished"
        return False
    _start(job)
    return True


def _fail(job: _Job[C], why: str) -> None:
    """A training that fails leaves no result; an evaluation that fails leaves the training as it is."""
    if job.trains:
        job.state.status, job.state.message = "failed", why
    else:
        job.state.status, job.state.message = "finished", f"trained, but {' '.join(job.running[2:])} failed: {why}"


def _stop(running: list[_Job[C]]) -> None:
    """Ask every run to save and end, and wait for it."""
    for job in running:
        if job.process is not None and job.process.poll() is None:
            job.process.terminate()
    for job in running:
        if job.process is not None:
            job.process.wait()
            _close(job)
        if not job.state.over:
            job.state.status = "stopped"
        job.state.read_new_events()
    running.clear()


def _close(job: _Job[C]) -> None:
    for stream in (job.log, job.process.stdin if job.process is not None else None):
        if stream is not None:
            stream.close()
    job.log = job.process = None


def _last_line(cell: PoolCell) -> str:
    lines = cell.log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
