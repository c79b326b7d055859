"""Train many runs as local processes, a few at a time, and tell what each is doing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypeVar

from ...tasks.run_config import RunConfig
from ...train import Interrupted, RunFolder
from ...train.device import available_cores

_POLL_SECONDS = 0.5


class PoolCell(Protocol):
    """A run that a command of its own can train."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> RunFolder: ...

    @property
    def config(self) -> RunConfig: ...

    @property
    def config_file(self) -> Path: ...

    @property
    def log_file(self) -> Path: ...

    def columns(self) -> Mapping[str, str]:
        """What tells it from the others, by heading: the first columns of a table of runs."""
        ...


C = TypeVar("C", bound=PoolCell)
Commands = Callable[[C], list[list[str]]]


@dataclass(slots=True)
class CellState(Generic[C]):
    """What is known of a cell while the pool runs."""

    cell: C
    status: str = "waiting"
    """waiting, running, translating, finished, non-finite or failed."""
    update: int = 0
    nll_nats: float | None = None
    message: str = ""
    _offset: int = field(default=0, repr=False)

    @property
    def over(self) -> bool:
        return self.status in ("finished", "non-finite", "failed")

    def read_new_events(self) -> None:
        """Take in what the run has logged since the last look."""
        file = self.cell.folder.metrics_file
        if not file.is_file():
            return
        if file.stat().st_size < self._offset:
            self._offset = 0  # a resumed run has gone back to its checkpoint
        with file.open("rb") as stream:
            stream.seek(self._offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                try:
                    event = json.loads(line)
                except ValueError:  # gone back and on again since the last look: read it all anew next time
                    self._offset = 0
                    break
                self._offset += len(line)
                self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        self.update = event["update"]
        if event["event"] == "validation":
            self.nll_nats = event["nll_nats"]
        elif event["event"] in ("finished", "non-finite"):
            self.status, self.message = event["event"], event.get("reason", "")


@dataclass(slots=True)
class _Job(Generic[C]):
    state: CellState[C]
    commands: list[list[str]]
    process: subprocess.Popen[bytes] | None = None
    log: IO[bytes] | None = None
    running: list[str] = field(default_factory=list)


def train_command(cell: PoolCell) -> list[str]:
    """What trains the cell, as words after the Python interpreter."""
    return ["-m", "normscope", "train", str(cell.config_file), "--run", str(cell.folder.path)]


def at_once(processes: int, config: RunConfig) -> int:
    """Runs at a time: `processes`, or for 0 as many as the cores have room for, given the threads of one."""
    threads = config.train.threads
    return processes or max(1, available_cores() // (threads if threads != "auto" else 1))


def run_cells(
    cells: Iterable[C],
    *,
    processes: int,
    evaluate: Commands[C] | None = None,
    watch: Callable[[list[CellState[C]]], None],
) -> list[CellState[C]]:
    """Train every cell that is not over, `processes` at a time.

    evaluate: commands to run after a cell's training, as words after the Python interpreter. watch: called twice a
    second with the states of all cells. Raises Interrupted on SIGINT or SIGTERM, after every run under way has saved.
    """
    states = [CellState(cell) for cell in cells]
    for state in states:
        state.read_new_events()
    waiting = [job for job in (_job(state, evaluate) for state in states) if job.commands]
    running: list[_Job[C]] = []
    stop: list[int] = []
    previous = {s: signal.signal(s, lambda number, frame: stop.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        while (waiting or running) and not stop:
            while waiting and len(running) < processes:
                running.append(_start(waiting.pop(0)))
            time.sleep(_POLL_SECONDS)
            running = [job for job in running if _advance(job)]
            watch(states)
        if stop:
            _stop(running)
            raise Interrupted(stop[0], "after every run under way has saved")
    finally:
        _stop(running)
        for number, handler in previous.items():
            signal.signal(number, handler)
    watch(states)
    return states


def _job(state: CellState[C], evaluate: Commands[C] | None) -> _Job[C]:
    commands = [] if state.over else [train_command(state.cell)]
    if evaluate is not None and state.status != "non-finite":
        commands += evaluate(state.cell)
    return _Job(state, commands)


def _start(job: _Job[C]) -> _Job[C]:
    """Start the job's next command, its output appended to the cell's log, in threads of its own."""
    threads = str(job.state.cell.config.train.threads)
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    job.running = job.commands.pop(0)
    job.state.status = "running" if "train" in job.running else "translating"
    job.log = job.state.cell.log_file.open("ab")
    # A session of its own, so that Ctrl-C reaches the runs through us alone and each can save.
    job.process = subprocess.Popen(
        [sys.executable, *job.running],
        stdout=job.log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    return job


def _advance(job: _Job[C]) -> bool:
    """Look at a running job and start its next command; False when it is over."""
    assert job.process is not None
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
        job.state.status, job.state.message = "failed", killed + _last_line(job.state.cell)
        return False
    if job.commands:
        _start(job)
        return True
    job.state.status = "finished"
    return False


def _stop(running: list[_Job[C]]) -> None:
    """Ask every run to save and end, and wait for it."""
    for job in running:
        if job.process is not None and job.process.poll() is None:
            job.process.terminate()
    for job in running:
        if job.process is not None:
            job.process.wait()
            _close(job)
    running.clear()


def _close(job: _Job[C]) -> None:
    if job.log is not None:
        job.log.close()
        job.log = None


def _last_line(cell: PoolCell) -> str:
    lines = cell.log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
