"""Train many runs, on whichever engine, and tell what each is doing."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..engines.choosing import LOCAL, EngineSettings, Needs
from ..engines.driving import Errand, drive
from ..engines.launching import GIVEN, together
from ..engines.opening import opened
from ..engines.seam import Engine, Job, said_at_the_end
from ..errors import UserError, option
from ..processes.surroundings import halted
from ..signals import Interrupted
from ..tasks.run_config import RunConfig
from ..train import StopRule
from ..train.config import DECIDED
from ..train.device import allowed_threads, available_cores
from ..train.together.joining import refuse_unshared_by
from .grid import Cell
from .state import CellState, looked_at

_WITHOUT_RESULT = ("non-finite", DECIDED)
"""The ends of a training after which there is nothing to evaluate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The options of how the runs of any grid are trained."""

    command: str
    """The command that was given, as the grid's folder keeps it."""
    engine: EngineSettings = LOCAL
    """The engine that trains them."""
    processes: int = 0
    """Runs at a time, 0 for as many as the engine has room for."""
    stop_when: StopRule | None = None
    """Ends runs early."""
    watch: Callable[[list[CellState]], None] = lambda states: None
    say: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        """Refuses a number of runs at a time that there cannot be. Raises UserError."""
        if self.processes < 0:
            raise UserError(f"{option('processes')} must be 0 or more, got {self.processes}")


@dataclass(slots=True)
class _Work(Errand):
    """The work on a cell: its training, and its evaluation."""

    state: CellState
    commands: list[list[str]]
    words: list[str] = field(default_factory=list)
    """The words of the command that runs."""

    @property
    def trains(self) -> bool:
        """True where the command that runs is the training, and not an evaluation."""
        return "train" in self.words

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.state.cell.folder.path

    def next_job(self) -> Job:
        """Returns the next command of the cell."""
        self.words = self.commands.pop(0)
        return job_of(self.state.cell, self.words)

    def begin(self, *, queued: bool) -> None:
        """Marks the run as begun, as every errand does."""
        begun = "queued" if queued else "running"
        self.state.status = begun if self.trains else "translating"

    def end(self, code: int) -> bool:
        """Notes the end of a command, as every errand does; returns True where another follows."""
        state = self.state
        state.read_new_events()
        if state.status in _WITHOUT_RESULT:
            return False
        if code != 0:
            self.fail(said_at_the_end(code, state.cell.log_file))
        elif self.trains:
            state.status = "finished"
        if state.status == "failed" or not self.commands:
            state.status = "failed" if state.status == "failed" else "finished"
            return False
        return True

    def fail(self, why: str) -> None:
        """A training that fails leaves no result; an evaluation that fails leaves the training as
        it is.
        """
        if self.trains:
            self.state.status, self.state.message = "failed", why
            return
        self.state.status = "finished"
        self.state.message = f"trained, but {' '.join(self.words[2:])} failed: {why}"

    def wait(self) -> None:
        """Marks the run as waiting for another process, as every errand does."""
        self.state.status = "waiting for another process"
        self.state.read_new_events()

    def look(self) -> None:
        """Takes in what a run that was started does now."""
        self.state.read_new_events()
        if self.state.status in ("running", "halted"):
            self.state.begin(halted(self.folder))

    def stop(self, *, goes_on: bool) -> None:
        """Marks the run as stopped, as every errand does."""
        if not self.state.over and not goes_on:
            self.state.status = "stopped"
        self.state.read_new_events()


def train_command(
    cell: Cell, stop_when: StopRule | None = None, config: object = None
) -> list[str]:
    """Returns the words after the Python interpreter that train the cell as a file says; without
    `config` that of its run.
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


def printed_command(cell: Cell, stop_when: StopRule | None, processes: int) -> str:
    """Returns the command with which a user trains the cell in so many processes, from the file of
    its configuration.
    """
    words = train_command(cell, stop_when, cell.config_file)[2:]
    if processes == 1:
        return shlex.join(["normscope", *words])
    launcher = ["torchrun", "--standalone", "--nproc-per-node", str(processes)]
    # The launcher's own options end with the two hyphens.
    return shlex.join([*launcher, "-m", "normscope", "--", *words])


def refuse_unshared(cells: Iterable[Cell], settings: EngineSettings) -> None:
    """Refuses a run that as many processes as the engine starts for each could not train together.
    Raises UserError.
    """
    count = settings.processes_per_run
    for cell in cells:
        refuse_unshared_by(
            count,
            cell.config.train,
            started=f"--engine-set processes_per_run={count} (engine_set in Python) starts",
            alone="without processes_per_run each run has one process",
        )


def job_of(cell: Cell, words: Sequence[str]) -> Job:
    """Returns the job that works on a cell's run, in the threads of the run.

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
    """Returns the number of threads of a run: where they are left open, those that a run would have
    on this machine.
    """
    threads = config.train.threads
    return allowed_threads() if threads == "auto" else threads


def engine_for(config: RunConfig, settings: EngineSettings, processes: int) -> Engine:
    """Returns the engine that trains runs of a configuration.

    processes: runs at a time; 0 for as many as there is room for, given what one takes. Raises
    UserError where the engine is not there.
    """
    return opened(settings, needs_of(config), processes)


def needs_of(config: RunConfig) -> Needs:
    """Returns what a run of a configuration needs of its machine."""
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
    works = [_work(state, evaluate, stop_when, engine.processes_per_run) for state in states]
    drive([work for work in works if work.commands], engine, lambda: watch(states))
    return states


def _work(
    state: CellState,
    evaluate: Callable[[Cell], list[list[str]]] | None,
    stop_when: StopRule | None,
    processes: int,
) -> _Work:
    training = together(train_command(state.cell, stop_when, GIVEN), processes)
    commands = [] if state.over else [training]
    if evaluate is not None and state.status not in _WITHOUT_RESULT:
        commands += evaluate(state.cell)
    return _Work(state, commands)


def train_all(
    cells: list[Cell],
    updates: int,
    engine: Engine,
    options: PoolOptions,
    split: str | None = None,
) -> tuple[list[CellState], Interrupted | None]:
    """Trains cells that take so many updates each; returns their states, and the signal that ended
    it all early.

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
