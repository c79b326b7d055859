"""The terminal's view of the runs of a grid while they train, and the end of such a command."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import typer

from ..report.words import duration, printable, sparkline
from .console import note, say, tell

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from ..compare.compare import ComparisonResult
    from ..compare.state import CellState
    from ..report.comparison.contents import ComparisonPage


_PLAIN_EVERY_SECONDS = 30.0
_LEAST_LETTERS, _MOST_LETTERS = 6, 16
"""The letters that a sparkline has at least and at most; without room for the least there is
none.
"""
_LOOKED_FOR = (
    "halted", "running", "translating", "failed", "non-finite", "decided", "stopped",
    "waiting for another process", "queued", "waiting", "finished",
)  # fmt: skip
"""States of runs, those first that a reader looks for where not all rows fit."""
_OTHER_LINES = 7
"""The lines of a terminal beside the table's rows: its head, what is said below it, and a line to
spare.
"""


class GridDisplay:
    """The runs of a grid: a live table on a terminal.

    Elsewhere a line whenever a run changes its state or is validated, and every 30 seconds one
    about all of them.
    """

    def __init__(self, console: "Console", clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        self.console = console
        self.clock = clock
        self._seen = dict[str, tuple[str, int]]()
        self._last_plain = clock()
        self.live = (
            Live(console=console, auto_refresh=False, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, states: Sequence["CellState"]) -> None:
        if self.live is not None:
            self.live.update(screen(states, self.console), refresh=True)
            return
        for state in states:
            seen = (state.status, state.nll_update)
            if self._seen.get(state.cell.name, ("waiting", 0)) != seen:
                self._seen[state.cell.name] = seen
                note(f"{state.cell.name}: {in_words(state)}", self.console)
        if self.clock() - self._last_plain > _PLAIN_EVERY_SECONDS:
            self._last_plain = self.clock()
            note(whole(states), self.console)


def in_words(state: "CellState") -> str:
    """Returns the state of a run in one line."""
    parts = [state.status, f"update {_out_of(state.update, state.total_updates)}"]
    if state.nll_nats is not None:
        parts.append(f"validation {state.nll_nats:.3f} nats at update {state.nll_update}")
    if state.status == "running" and state.seconds_left is not None:
        parts.append(f"{duration(state.seconds_left)} left")
    return ", ".join([*parts, state.message] if state.status == "halted" else parts)


def whole(states: Sequence["CellState"]) -> str:
    """Returns the progress of all runs together in one line."""
    from ..compare.state import outlook

    found = outlook(states)
    every = f"all {len(states)} runs" if len(states) > 1 else "1 run"
    parts = [f"{every}: update {_out_of(found.update, found.updates)}"]
    if found.updates_per_second is not None:
        parts.append(f"{found.updates_per_second:.3g} updates/s")
    if found.seconds_left is not None:
        parts.append(f"about {duration(found.seconds_left)} left")
    return ", ".join(parts)


def screen(states: Sequence["CellState"], console: "Console") -> "RenderableType":
    """The table and how far all are: all rows where they fit the terminal, else those that a reader
    looks for.
    """
    from rich.console import Group

    room = max(1, console.size.height - _OTHER_LINES)
    if len(states) <= room:
        return Group(table(states, console), whole(states))
    by_state = sorted(range(len(states)), key=lambda i: (_LOOKED_FOR.index(states[i].status), i))
    shown = [states[i] for i in sorted(by_state[:room])]
    counts = Counter(states[i].status for i in by_state[room:])
    rest = ", ".join(f"{counts[status]} {status}" for status in _LOOKED_FOR if counts[status])
    return Group(table(shown, console), f"and {len(states) - room} more: {rest}", whole(states))


def table(states: Sequence["CellState"], console: "Console") -> "Table":
    """Returns a row for each run, with the course of its loss where the console has room for it."""
    bare = _table(states, 0, ascii_only=False)
    room = console.size.width - console.measure(bare).maximum - 2
    letters = min(_MOST_LETTERS, room)
    if letters < _LEAST_LETTERS or not any(len(state.course(2)) > 1 for state in states):
        return bare
    return _table(states, letters, ascii_only=console.options.ascii_only)


def _table(states: Sequence["CellState"], letters: int, *, ascii_only: bool) -> "Table":
    from rich.table import Table

    every = [state.cell.columns() for state in states]
    # What all have in common tells none from another, and a terminal of 80 columns has no room for
    # it.
    differing = []
    for place, name in enumerate(every[0]):
        values = {columns[name] for columns in every}
        if place == 0 or len(values) > 1:
            differing.append(name)
    course = ["loss"] if letters else []
    made = Table(
        *differing, "state", "update", "updates/s", "left", "validation (nats)", *course, box=None
    )
    for state, columns in zip(states, every, strict=True):
        rate, left = state.updates_per_second, state.seconds_left
        running = state.status == "running"
        made.add_row(
            *(printable(columns[name]) for name in differing),
            state.status,
            _out_of(state.update, state.total_updates),
            f"{rate:.3g}" if running and rate is not None else "",
            duration(left) if running and left is not None else "",
            "" if state.nll_nats is None else f"{state.nll_nats:.3f} at {state.nll_update}",
            *([sparkline(state.course(letters), ascii_only=ascii_only)] if letters else []),
        )
    return made


def _out_of(update: int, updates: int | None) -> str:
    return str(update) if updates is None else f"{update}/{updates}"


def end_of(done: "ComparisonResult") -> None:
    """Print the summary and what failed; exit where something failed, or a signal ended it."""
    # Where a closed terminal has stopped it there is nobody to tell.
    with contextlib.suppress(OSError) if done.stopped else contextlib.nullcontext():
        print_summary(done.page, done.file)
    for line in done.problems:
        say(f"failed: {line}")
    if done.stopped is not None:
        say(f"{done.stopped}; the report shows what there is. Run the same command to resume")
        raise typer.Exit(done.stopped.exit_code)
    if done.problems:
        raise typer.Exit(1)


def print_summary(page: "ComparisonPage", file: Path) -> None:
    """Print what a report says of every configuration, and where it is."""
    from ..report.comparison.page import summary_lines

    tell(*summary_lines(page, str(file)))
