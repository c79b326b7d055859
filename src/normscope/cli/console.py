"""What the terminal shows while work is under way: a live display for a person, lines of text for a file or a pipe."""

import contextlib
import math
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from ..studies.grids.pool import CellState

_PLAIN_EVERY_SECONDS = 10.0


class _Stderr:
    """sys.stderr for as long as somebody reads it: a terminal that was closed, or a reader that has gone, ends no work.

    A run whose terminal is closed must be able to save.
    """

    @property
    def _file(self) -> TextIO:
        # A live display stands in for sys.stderr and prints through the console, which is to say here.
        file: TextIO = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
        return file

    @property
    def encoding(self) -> str:
        return self._file.encoding

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()

    def isatty(self) -> bool:
        return self._file.isatty()

    def fileno(self) -> int:
        return self._file.fileno()


stderr = Console(file=cast(IO[str], _Stderr()), stderr=True, highlight=False, markup=False, emoji=False)


class TrainDisplay:
    """The progress of a run: a bar on a terminal; elsewhere a line every ten seconds and one for every validation."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.title, self._last_plain = console, title, -math.inf
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total} updates"),
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self.bar.add_task(title, total=None, note="starting")

    def __enter__(self) -> "TrainDisplay":
        self.bar.start()
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.bar.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        kind, update, updates = event["event"], event["update"], event["updates"]
        if kind == "update":
            note = (
                f"loss {event['loss_nats']:.3f} nats  lr {event['lr']:.2e}  |g| {event['gradient_norm']:.2f}  "
                f"{event['target_tokens_per_second']:,.0f} tokens/s"
            )
            self.bar.update(self._task, completed=update, total=updates, note=note)
            if not self.console.is_terminal and time.monotonic() - self._last_plain > _PLAIN_EVERY_SECONDS:
                self._last_plain = time.monotonic()
                self.console.print(f"{self.title}: update {update}/{updates}  {note}", soft_wrap=True)
        elif kind == "validation":
            scores = f"  BLEU {event['bleu']:.2f}" if "bleu" in event else ""
            scores += f"  accuracy {event['accuracy']:.4f}" if "accuracy" in event else ""
            each = "pair" if "accuracy" in event else "target token"
            text = f"validation {event['nll_nats']:.4f} nats ({event['nll_bits']:.4f} bits) per {each}{scores}"
            self._line(f"update {update}: {text}")
        elif kind == "skipped":
            self._line(f"update {update} skipped: {event['reason']}")
        elif kind == "finished":
            self._line(
                f"finished after {update} updates; cumulative learning rate (sum over updates) {event['summed_lr']:.4g}"
            )

    def _line(self, text: str) -> None:
        self.console.print(f"{self.title}: {text}", soft_wrap=True)


class StageDisplay:
    """The progress of work in stages; call it with a stage, what is done and the total."""

    def __init__(self, console: Console) -> None:
        self.console, self._tasks = console, dict[str, Any]()
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,}/{task.total:,}"),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "StageDisplay":
        self.bar.start()
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self.bar.add_task(stage, total=total)
            if not self.console.is_terminal:
                self.console.print(f"{stage} ...", soft_wrap=True)
        self.bar.update(self._tasks[stage], completed=done, total=total)


class GridDisplay:
    """The runs of a grid: a live table on a terminal; elsewhere a line whenever a run changes its state."""

    def __init__(self, console: Console) -> None:
        self.console, self._seen = console, dict[str, str]()
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
            self.live.update(self._table(states), refresh=True)
            return
        for state in states:
            loss = "" if state.nll_nats is None else f", validation {state.nll_nats:.3f} nats"
            line = f"{state.cell.name}: {state.status}{loss}"
            if self._seen.get(state.cell.name) != line and state.status != "waiting":
                self._seen[state.cell.name] = line
                self.console.print(f"{line} (update {state.update})", soft_wrap=True)

    def _table(self, states: Sequence["CellState[Any]"]) -> Table:
        table = Table(*states[0].cell.columns(), "state", "update", "validation loss (nats)", box=None)
        for state in states:
            loss = "" if state.nll_nats is None else f"{state.nll_nats:.3f}"
            table.add_row(*state.cell.columns().values(), state.status, str(state.update), loss)
        return table


def say(text: str) -> None:
    """Print a note for the user, without breaking its lines."""
    stderr.print(text, soft_wrap=True)
