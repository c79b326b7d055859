"""Train many runs by an engine, and tell what each is doing."""

import itertools
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..engines.seam import AnyEngine, Job
from ..optim import parse_duration
from ..processes.locks import is_held
from ..signals import Interrupted, StopRequest
from ..tasks.run_config import RunConfig
from ..train import StopRule
from ..train.config import DECIDED
from ..train.device import available_cores
from .state import CellState, PoolCell

_POLL_SECONDS = 0.1
_WATCH_SECONDS = 0.5
_SAVED = "after every run under way has saved"
_OUTLIVED = "while its jobs stay in their queue; the same command watches them again"

_WITHOUT_RESULT = ("non-finite", DECIDED)
"""How a training ends of which there is nothing to evaluate."""

C = TypeVar("C", bound=PoolCell)
Commands = Callable[[C], list[list[str]]]


@dataclass(slots=True)
class _Work(Generic[C]):
    """What is to be done for a cell."""

    state: CellState[C]
    commands: list[list[str]]
    words: list[str] = field(default_factory=list)
    """Of the command that runs."""
    running: Any = None
    """What the engine knows it by; None where it could not be started."""

    @property
    def trains(self) -> bool:
        """Whether the command that runs is the training, and not an evaluation."""
        return "train" in self.words


def train_command(cell: PoolCell, stop_when: StopRule | None = None) -> list[str]:
    """What trains the cell, as words after the Python interpreter. stop_when: what ends it early."""
    early = [] if stop_when is None else ["--stop-when", str(stop_when)]
    return ["-m", "normscope", "train", str(cell.config_file), "--run", str(cell.folder.path), *early]


def job_of(cell: PoolCell, words: Sequence[str]) -> Job:
    """A command that works on a cell's run, as an engine takes it."""
    threads = cell.config.train.threads
    return Job(
        name=cell.name,
        words=words,
        directory=Path.cwd(),
        folder=cell.folder.path.resolve(),
        log=cell.log_file.resolve(),
        threads=available_cores() if threads == "auto" else threads,
    )


def at_once(processes: int, config: RunConfig) -> int:
    """Runs at a time: `processes`, or for 0 as many as the cores have room for, given the threads of one."""
    threads = config.train.threads
    return processes or max(1, available_cores() // (threads if threads != "auto" else 1))


def stated_updates(cell: PoolCell) -> int | None:
    """The updates of a cell's whole run; None where its duration is in epochs."""
    number, unit = parse_duration(cell.config.train.duration)
    return int(number) if unit == "updates" else None


def stated_epochs(cell: PoolCell) -> float | None:
    """The epochs of a cell's whole run; None where its duration is in updates."""
    number, unit = parse_duration(cell.config.train.duration)
    return float(number) if unit == "epochs" else None


def run_cells(
    cells: Iterable[C],
    *,
    engine: AnyEngine,
    evaluate: Commands[C] | None = None,
    updates_of: Callable[[C], int | None] = stated_updates,
    stop_when: StopRule | None = None,
    watch: Callable[[list[CellState[C]]], None],
) -> list[CellState[C]]:
    """Train every cell that is not over. A cell that another process trains is waited for.

    evaluate: commands to run after a cell's training, as words after the Python interpreter. updates_of: the updates
    of a cell's whole run. stop_when: ends runs early; without it, one that was ended so goes on. watch: called twice a
    second with the states of all cells. Raises Interrupted after a signal that asks for an end, when every run under
    way has saved. Should this process be killed, the runs of a local engine save and end too.
    """
    states = [CellState(cell, updates_of(cell), epochs=stated_epochs(cell)) for cell in cells]
    for state in states:
        state.read_new_events()
        state.reopen(stop_when)
    waiting = [work for work in (_work(state, evaluate, stop_when) for state in states) if work.commands]
    running: list[_Work[C]] = []
    watched = -_WATCH_SECONDS
    try:
        with StopRequest() as stop:
            while (waiting or running) and stop.signal_number is None:
                room = len(waiting) if engine.at_once is None else engine.at_once - len(running)
                for work in _free(waiting, room):
                    waiting.remove(work)
                    running.append(work)
                    _start(work, engine)
                if time.monotonic() - watched >= _WATCH_SECONDS:
                    watch(states)
                    watched = time.monotonic()
                time.sleep(_POLL_SECONDS)
                running = [work for work in running if _advance(work, engine)]
            if stop.signal_number is not None:
                _stop(running, engine)
                watch(states)
                raise Interrupted(stop.signal_number, _OUTLIVED if engine.outlived else _SAVED)
    finally:
        _stop(running, engine)
    watch(states)
    return states


def _work(state: CellState[C], evaluate: Commands[C] | None, stop_when: StopRule | None) -> _Work[C]:
    commands = [] if state.over else [train_command(state.cell, stop_when)]
    if evaluate is not None and state.status not in _WITHOUT_RESULT:
        commands += evaluate(state.cell)
    return _Work(state, commands)


def _free(waiting: Iterable[_Work[C]], count: int) -> list[_Work[C]]:
    """The first `count` whose run no other process trains, such as one whose parent was killed and that saves."""

    def free(work: _Work[C]) -> bool:
        held = is_held(work.state.cell.folder.path)
        if held:
            work.state.status = "waiting for another process"
            work.state.read_new_events()
        return not held

    return list(itertools.islice(filter(free, waiting), count))


def _start(work: _Work[C], engine: AnyEngine) -> None:
    """Start the next command of a cell."""
    work.words = work.commands.pop(0)
    begun = "running" if engine.at_once is not None else "queued"
    work.state.status = begun if work.trains else "translating"
    job = job_of(work.state.cell, work.words)
    try:
        work.running = engine.start(job)
    except OSError as error:
        work.running = None
        _fail(work, f"its process could not be started: {error.strerror or error}")


def _advance(work: _Work[C], engine: AnyEngine) -> bool:
    """Look at a cell's command and start its next one; False when all are over."""
    if work.running is None:
        return False
    work.state.read_new_events()
    code = engine.poll(work.running)
    if code is None:
        return True
    work.running = None
    work.state.read_new_events()
    if work.state.status in _WITHOUT_RESULT:
        return False
    if code != 0:
        killed = f"killed by {signal.Signals(-code).name}; the last it said: " if code < 0 else ""
        _fail(work, killed + _last_line(work.state.cell))
    elif work.trains:
        work.state.status = "finished"
    if work.state.status == "failed" or not work.commands:
        work.state.status = "failed" if work.state.status == "failed" else "finished"
        return False
    _start(work, engine)
    return True


def _fail(work: _Work[C], why: str) -> None:
    """A training that fails leaves no result; an evaluation that fails leaves the training as it is."""
    if work.trains:
        work.state.status, work.state.message = "failed", why
    else:
        work.state.status, work.state.message = "finished", f"trained, but {' '.join(work.words[2:])} failed: {why}"


def _stop(running: list[_Work[C]], engine: AnyEngine) -> None:
    """Ask every run to save and end, and wait for it."""
    engine.stop([work.running for work in running if work.running is not None])
    for work in running:
        if not work.state.over and not engine.outlived:
            work.state.status = "stopped"
        work.state.read_new_events()
    running.clear()


def _last_line(cell: PoolCell) -> str:
    lines = cell.log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
