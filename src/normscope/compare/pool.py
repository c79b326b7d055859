"""Train many runs as processes of this machine, and tell what each is doing."""

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryFile

from ..errors import UserError, option
from ..processes.surroundings import halted, interpreter, is_held, with_lifeline
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
_WITHOUT_RESULT = ("non-finite", DECIDED)
"""How a training ends of which there is nothing to evaluate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How the runs of a grid are trained, whichever they are."""

    command: str
    """That was given, as the grid's folder keeps it."""
    processes: int = 0
    """Runs at a time, 0 for cores / threads of a run."""
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
    process: subprocess.Popen[bytes] | None = None
    """None where it could not be started."""

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


def process_of(cell: Cell, words: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process that works on a cell's run, in the threads of the run. Raises OSError where it
    cannot be started.

    words: what follows the Python interpreter; what they say is added to the cell's log. It finds
    the configuration at its standard input. Should this process be killed, that one saves and ends.
    """
    threads = str(
        allowed_threads() if cell.config.train.threads == "auto" else cell.config.train.threads
    )
    with cell.log_file.open("ab") as log, TemporaryFile() as given:
        # Whole before there is a process to read it, and gone with it, whichever of the two is
        # killed.
        given.write(cell.configuration.encode())
        given.seek(0)
        # A session of its own, so that Ctrl-C reaches the runs through us alone and each can save.
        return subprocess.Popen(
            [*interpreter(), *words],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=given,
            env=with_lifeline(
                os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads)
            ),
            start_new_session=True,
        )


def at_once(processes: int, config: RunConfig) -> int:
    """Runs at a time: `processes`, or for 0 as many as the cores have room for, given the threads
    of one.
    """
    threads = config.train.threads
    return processes or max(1, available_cores() // (threads if threads != "auto" else 1))


def run_cells(
    cells: Iterable[Cell],
    *,
    at_once: int,
    evaluate: Callable[[Cell], list[list[str]]] | None = None,
    updates: int | None = None,
    stop_when: StopRule | None = None,
    watch: Callable[[list[CellState]], None],
) -> list[CellState]:
    """Train every cell that is not over, `at_once` at a time. A cell that another process trains is
    waited for.

    evaluate: commands to run after a cell's training, as words after the Python interpreter.
    updates: those of every cell's whole run; None for what its configuration says. stop_when: ends
    runs early; without it, one that was ended so goes on. watch: called with the states of all,
    twice a second at most. Raises Interrupted after a signal that asks for an end, when every run
    under way has saved. Should this process be killed, its runs save and end too.
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
                for work in _free(waiting, at_once - len(running)):
                    waiting.remove(work)
                    running.append(work)
                    _start(work)
                if (begun := time.monotonic()) >= next_watch:
                    for state in (work.state for work in running):
                        if state.status in ("running", "halted"):
                            state.begin(halted(state.cell.folder.path))
                    watch(states)
                    next_watch = begun + max(
                        _WATCH_SECONDS, (time.monotonic() - begun) / _WATCH_SHARE
                    )
                time.sleep(_POLL_SECONDS)
                running = [work for work in running if _advance(work)]
        if stop.signal_number is not None:
            _stop(running)
            watch(states)
            raise Interrupted(stop.signal_number, "after every run under way has saved")
    finally:
        _stop(running)
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


def _start(work: _Work) -> None:
    """Start the next command of a cell."""
    work.words = work.commands.pop(0)
    work.state.status = "running" if work.trains else "translating"
    try:
        work.process = process_of(work.state.cell, work.words)
    except OSError as error:
        work.process = None
        _fail(work, f"its process could not be started: {error.strerror or error}")


def _advance(work: _Work) -> bool:
    """Look at a cell's command and start its next one; False when all are over."""
    if work.process is None:
        return False
    work.state.read_new_events()
    code = work.process.poll()
    if code is None:
        return True
    work.process = None
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
    _start(work)
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


def _stop(running: list[_Work]) -> None:
    """Ask every run to save and end, and wait for it."""
    processes = [work.process for work in running if work.process is not None]
    for process in processes:
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # one that was halted saves too
    for process in processes:
        process.wait()
    for work in running:
        if not work.state.over:
            work.state.status = "stopped"
        work.state.read_new_events()
    running.clear()


def train_all(
    cells: list[Cell], updates: int, options: PoolOptions, split: str | None = None
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
            at_once=at_once(options.processes, cells[0].config),
            evaluate=lambda cell: cell.evaluation_commands(split),
            updates=updates,
            stop_when=options.stop_when,
            watch=look,
        ), None
    except Interrupted as stop:
        return seen, stop
