"""Train many runs, on whichever engine, and tell what each is doing."""

import itertools
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..engines.choosing import LOCAL, EngineSettings, Needs
from ..engines.opening import opened
from ..engines.seam import Engine, Future, Job
from ..errors import UserError, option
from ..processes.surroundings import halted, is_held
from ..signals import Interrupted, StopRequest
from ..tasks.run_config import RunConfig
from ..train import StopRule
from ..train.config import DECIDED
from ..train.device import allowed_threads, available_cores
from .grid import Cell
from .state import CellState, looked_at

_POLL_SECONDS = 0.1
_WATCH_SECONDS, _WATCH_SHARE = 0.5, 0.02
"""Between two looks at all runs, and the most of the time that these take: very many are looked at
more seldom.
"""
_SAVED = "after every run under way has saved"
_OUTLIVED = "; runs in the queue go on, and the same command looks after them again"
_WITHOUT_RESULT = ("non-finite", DECIDED)
"""How a training ends of which there is nothing to evaluate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How the runs of a grid are trained, whichever they are."""

    command: str
    """That was given, as the grid's folder keeps it."""
    engine: EngineSettings = LOCAL
    """Where they are trained."""
    processes: int = 0
    """Runs at a time, 0 for as many as the engine has room for."""
    stop_when: StopRule | None = None
    """Ends runs early."""
    watch: Callable[[list[CellState]], None] = lambda states: None
    say: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        """Raises UserError for a number of runs at a time that there cannot be."""
        if self.processes < 0:
            raise UserError(f"{option('processes')} must be 0 or more, got {self.processes}")


@dataclass(slots=True)
class _Work:
    """What is to be done for a cell."""

    state: CellState
    commands: list[list[str]]
    words: list[str] = field(default_factory=list)
    """Of the command that runs."""
    future: Future | None = None
    """None where it could not be started, and once it has ended."""

    @property
    def trains(self) -> bool:
        """Whether the command that runs is the training, and not an evaluation."""
        return "train" in self.words


def train_command(
    cell: Cell, stop_when: StopRule | None = None, config: object = None
) -> list[str]:
    """What trains the cell as a file says, None being its run's, as words after the Python
    interpreter.
    """
    early = [] if stop_when is None else ["--stop-when", str(stop_when)]
    return [
        "-m",
        "normscope",
        "train",
        str(config or cell.folder.config_file),
        "--run",
        str(cell.folder.path),
        *early,
    ]


def job_of(cell: Cell, words: Sequence[str]) -> Job:
    """What works on a cell's run, in the threads of the run.

    words: what follows the Python interpreter; what they say is added to the cell's log, and they
    find the configuration at their standard input.
    """
    return Job(
        name=cell.name,
        words=words,
        configuration=cell.configuration,
        directory=Path.cwd(),
        folder=cell.folder.path,
        log=cell.log_file,
        threads=threads_of(cell.config),
    )


def threads_of(config: RunConfig) -> int:
    """Threads of a run: where they are left open, those that a run would have on this machine."""
    threads = config.train.threads
    return allowed_threads() if threads == "auto" else threads


def engine_for(config: RunConfig, settings: EngineSettings, processes: int) -> Engine:
    """The engine that trains runs of a configuration.

    processes: runs at a time; 0 for as many as there is room for, given what one takes. Raises
    UserError where the engine is not there.
    """
    return opened(settings, needs_of(config), processes)


def needs_of(config: RunConfig) -> Needs:
    """What a run of a configuration takes of its machine."""
    return Needs(threads=threads_of(config), device=config.train.device, cores=available_cores())


def run_cells(
    cells: Iterable[Cell],
    *,
    engine: Engine,
    evaluate: Callable[[Cell], list[list[str]]] | None = None,
    updates: int | None = None,
    stop_when: StopRule | None = None,
    watch: Callable[[list[CellState]], None],
) -> list[CellState]:
    """Train every cell that is not over, as many at a time as the engine has room for. A cell that
    another process trains is waited for.

    evaluate: commands to run after a cell's training, as words after the Python interpreter.
    updates: those of every cell's whole run; None for what its configuration says. stop_when: ends
    runs early; without it, one that was ended so goes on. watch: called with the states of all,
    twice a second at most. Raises Interrupted after a signal that asks for an end, when every run
    under way has saved, or is left going by an engine that is outlived.
    """
    states = looked_at(cells, updates, stop_when)
    waiting = [
        work for work in (_work(state, evaluate, stop_when) for state in states) if work.commands
    ]
    running: list[_Work] = []
    next_watch = 0.0
    try:
        with StopRequest() as stop, _unless_asked_to(stop):
            while (waiting or running) and stop.signal_number is None:
                most = len(waiting) if engine.at_once is None else engine.at_once - len(running)
                for work in _free(waiting, most):
                    waiting.remove(work)
                    running.append(work)
                    _start(work, engine)
                if (begun := time.monotonic()) >= next_watch:
                    for state in (work.state for work in running):
                        _look_at(state)
                    watch(states)
                    next_watch = begun + max(
                        _WATCH_SECONDS, (time.monotonic() - begun) / _WATCH_SHARE
                    )
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


@contextmanager
def _unless_asked_to(stop: StopRequest) -> Iterator[None]:
    """A context that ends where a signal did: some disks have a look at a file fail then, which
    Python asks once.
    """
    try:
        yield
    except InterruptedError:
        if stop.signal_number is None:
            raise


def _work(
    state: CellState, evaluate: Callable[[Cell], list[list[str]]] | None, stop_when: StopRule | None
) -> _Work:
    commands = [] if state.over else [train_command(state.cell, stop_when, "/dev/stdin")]
    if evaluate is not None and state.status not in _WITHOUT_RESULT:
        commands += evaluate(state.cell)
    return _Work(state, commands)


def _free(waiting: Iterable[_Work], count: int) -> list[_Work]:
    """The first `count` whose run no other process trains, such as one whose parent was killed and
    that saves.
    """

    def free(work: _Work) -> bool:
        held = is_held(work.state.cell.folder.path)
        if held:
            work.state.status = "waiting for another process"
            work.state.read_new_events()
        return not held

    return list(itertools.islice(filter(free, waiting), count))


def _look_at(state: CellState) -> None:
    """Take in what a run that was started does now."""
    state.read_new_events()
    if state.status in ("running", "halted"):
        state.begin(halted(state.cell.folder.path))


def _start(work: _Work, engine: Engine) -> None:
    """Start the next command of a cell."""
    work.words = work.commands.pop(0)
    begun = "queued" if engine.queues else "running"
    work.state.status = begun if work.trains else "translating"
    try:
        work.future = engine.start(job_of(work.state.cell, work.words))
    except OSError as error:
        work.future = None
        _fail(work, f"its process could not be started: {error.strerror or error}")


def _advance(work: _Work, engine: Engine) -> bool:
    """Look at a cell's command and start its next one; False when all are over."""
    if work.future is None:
        return False
    code = work.future.code()
    if code is None:
        return True
    work.future = None
    work.state.read_new_events()
    if work.state.status in _WITHOUT_RESULT:
        return False
    if code != 0:
        killed = f"killed by {signal.Signals(-code).name}; the last it said: " if code < 0 else ""
        log = work.state.cell.log_file.read_text(encoding="utf-8", errors="replace").strip()
        _fail(work, killed + (log.splitlines() or ["no output"])[-1])
    elif work.trains:
        work.state.status = "finished"
    if work.state.status == "failed" or not work.commands:
        work.state.status = "failed" if work.state.status == "failed" else "finished"
        return False
    _start(work, engine)
    return True


def _fail(work: _Work, why: str) -> None:
    """A training that fails leaves no result; an evaluation that fails leaves the training as it
    is.
    """
    if work.trains:
        work.state.status, work.state.message = "failed", why
    else:
        work.state.status, work.state.message = (
            "finished",
            f"trained, but {' '.join(work.words[2:])} failed: {why}",
        )


def _stop(running: list[_Work], engine: Engine) -> None:
    """Ask every run to save and end, and wait for it; an engine that is outlived leaves them
    going.
    """
    engine.stop([work.future for work in running if work.future is not None])
    for work in running:
        if not work.state.over and not engine.outlived:
            work.state.status = "stopped"
        work.state.read_new_events()
    running.clear()


def train_all(
    cells: list[Cell],
    updates: int,
    engine: Engine,
    options: PoolOptions,
    split: str | None = None,
) -> tuple[list[CellState], Interrupted | None]:
    """What became of cells that take so many updates each, and the signal that ended it all early.

    split: translated and scored with each best checkpoint, unless it was.
    """
    seen: list[CellState] = []

    def look(states: list[CellState]) -> None:
        seen[:] = states
        options.watch(states)

    try:
        return run_cells(
            cells,
            engine=engine,
            evaluate=lambda cell: cell.evaluation_commands(split),
            updates=updates,
            stop_when=options.stop_when,
            watch=look,
        ), None
    except Interrupted as stop:
        return seen, stop
