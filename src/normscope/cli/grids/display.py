"""What the terminal shows of the runs of a grid while they train."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from ...report.numbers import duration

if TYPE_CHECKING:
    from ...studies.grids.state import CellState

_PLAIN_EVERY_SECONDS = 30.0


class GridDisplay:
    """The runs of a grid: a live table on a terminal.

    Elsewhere a line whenever a run changes its state or is validated, and every 30 seconds one about all of them.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.clock, self._seen, self._last_plain = console, clock, dict[str, tuple[str, int]](), clock()
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> "GridDisplay":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, states: Sequence["CellState[Any]"]) -> None:
        if self.live is not None:
            self.live.update(Group(_table(states), _whole(states)), refresh=True)
            return
        for state in states:
            seen = (state.status, state.nll_update)
            if self._seen.get(state.cell.name, ("waiting", 0)) != seen:
                self._seen[state.cell.name] = seen
                self.console.print(f"{state.cell.name}: {_in_words(state)}", soft_wrap=True)
        if self.clock() - self._last_plain > _PLAIN_EVERY_SECONDS:
            self._last_plain = self.clock()
            self.console.print(_whole(states), soft_wrap=True)


def _in_words(state: "CellState[Any]") -> str:
    """What a run is doing, in a line."""
    parts = [state.status, f"update {_of(state.update, state.updates)}"]
    if state.nll_nats is not None:
        parts.append(f"validation {state.nll_nats:.3f} nats at update {state.nll_update}")
    if state.status == "running" and state.seconds_left is not None:
        parts.append(f"{duration(state.seconds_left)} left")
    return ", ".join(parts)


def _whole(states: Sequence["CellState[Any]"]) -> str:
    """How far all runs together are, in a line."""
    from ...studies.grids.state import outlook

    whole = outlook(states)
    parts = [f"all {len(states)} runs: update {_of(whole.update, whole.updates)}"]
    if whole.updates_per_second is not None:
        parts.append(f"{whole.updates_per_second:.3g} updates/s")
    if whole.seconds_left is not None:
        parts.append(f"about {duration(whole.seconds_left)} left")
    return ", ".join(parts)


def _table(states: Sequence["CellState[Any]"]) -> Table:
    every = [state.cell.columns() for state in states]
    # What all have in common tells none from another, and a terminal of 80 columns has no room for it.
    differing = [name for index, name in enumerate(every[0]) if index == 0 or len({c[name] for c in every}) > 1]
    table = Table(*differing, "state", "update", "updates/s", "left", "validation (nats)", box=None)
    for state, columns in zip(states, every, strict=True):
        rate, left = state.updates_per_second, state.seconds_left
        running = state.status == "running"
        table.add_row(
            *(columns[name] for name in differing),
            state.status,
            _of(state.update, state.updates),
            f"{rate:.3g}" if running and rate is not None else "",
            duration(left) if running and left is not None else "",
            "" if state.nll_nats is None else f"{state.nll_nats:.3f} at {state.nll_update}",
        )
    return table


def _of(update: int, updates: int | None) -> str:
    return str(update) if updates is None else f"{update}/{updates}"
