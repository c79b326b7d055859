"""The terminal while work is under way: a live display for a person, lines of text for a file or a
pipe.
"""

import contextlib
import io
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import IO, TYPE_CHECKING, Any, Self, TextIO, cast

from ..report.words import broken, duration, printable, writes_like_letters

if TYPE_CHECKING:
    from rich.console import Console

    from ..history.explain import Explanation


_PLAIN_EVERY_SECONDS = 10.0


class _Stderr:
    """sys.stderr for as long as somebody reads it: a terminal that was closed, or a reader that has
    gone, ends no work.

    A run whose terminal is closed must be able to save.
    """

    @property
    def _file(self) -> TextIO:
        # A live display stands in for sys.stderr and prints through the console, which is to say
        # here.
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


@cache
def stderr() -> "Console":
    """Standard error, the same object for all who write to it; `--help` does not wait for rich."""
    from rich.console import Console

    return Console(
        file=cast(IO[str], _Stderr()), stderr=True, highlight=False, markup=False, emoji=False
    )


_PIPED_COLUMNS, _LEAST_COLUMNS = 100, 40


def standard_output() -> "Console":
    """Standard output, as wide as the terminal or COLUMNS say; a pipe of which neither is known has
    100.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console.width = _PIPED_COLUMNS
    return console


def columns() -> int:
    """Returns the width of lines on standard output, in columns."""
    return max(_LEAST_COLUMNS, standard_output().width)


class _BarDisplay:
    """Tasks with a bar each, on a terminal."""

    def __init__(self, console: "Console", *columns: str) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self.console = console
        texts = [TextColumn(column, markup=False) for column in ("{task.description}", *columns)]
        self.bar = Progress(
            texts[0], BarColumn(24), *texts[1:], console=console, disable=not console.is_terminal
        )

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.stop()


class TrainDisplay(_BarDisplay):
    """The progress of a run: a bar on a terminal; elsewhere a line every ten seconds and one for
    every validation.
    """

    def __init__(self, console: "Console", title: str) -> None:
        from rich.progress import TimeRemainingColumn

        super().__init__(console, "{task.completed}/{task.total} updates", "{task.fields[note]}")
        self.bar.columns = (*self.bar.columns, TimeRemainingColumn(compact=True))
        self.title = title
        self._last_plain = -math.inf
        self._first = 0
        self._task = self.bar.add_task(title, total=None, note="starting")

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        update = event["update"]
        updates = event["updates"]
        if kind == "update":
            self._first = self._first or update
            note = (
                f"loss {event['loss_nats']:.3f} nats  lr {event['lr']:.2e}  |g| "
                f"{event['gradient_norm']:.2f}  {event['target_tokens_per_second']:,.0f} tokens/s  "
                f"{event['input_wait_share']:.1%} waiting for data"
            )
            self.bar.update(self._task, completed=update, total=updates, note=note)
            if (
                not self.console.is_terminal
                and time.monotonic() - self._last_plain > _PLAIN_EVERY_SECONDS
            ):
                self._last_plain = time.monotonic()
                # A resumed run does not begin at 1.
                left = event["elapsed_seconds"] / (update + 1 - self._first) * (updates - update)
                self._line(f"update {update}/{updates}  {note}  {duration(left)} left")
        elif kind == "validation":
            nats, scores = (
                event["nll_nats"],
                f"  BLEU {event['bleu']:.2f}" if "bleu" in event else "",
            )
            text = (
                f"validation {nats:.4f} nats ({nats / math.log(2):.4f} bits) per target "
                f"token{scores}"
            )
            self._line(f"update {update}: {text}")
        elif kind == "skipped":
            self._line(f"update {update} skipped: {event['reason']}")
        elif kind == "finished":
            self._line(
                f"finished after {update} updates; cumulative learning rate (sum over updates) "
                f"{event['summed_lr']:.4g}"
            )

    def _line(self, text: str) -> None:
        note(f"{self.title}: {text}", self.console)


class StageDisplay(_BarDisplay):
    """The progress of work in stages; call it with a stage, what is done and the total.

    A stage whose parts take long says how much time is left, at the pace since it was first shown.
    """

    def __init__(self, console: "Console", clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(console, "{task.completed:,}/{task.total:,}", "{task.fields[left]}")
        self.clock = clock
        self._tasks = dict[str, Any]()
        self._first = dict[str, tuple[float, int]]()
        self._last_plain = clock()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self.bar.add_task(stage, total=total, left="")
            self._first[stage] = self.clock(), done
            if not self.console.is_terminal:
                self._last_plain = self.clock()
                note(f"{stage} ...", self.console)
        left = self._left(stage, done, total)
        self.bar.update(self._tasks[stage], completed=done, total=total, left=left)
        if (
            left
            and not self.console.is_terminal
            and self.clock() - self._last_plain > _PLAIN_EVERY_SECONDS
        ):
            self._last_plain = self.clock()
            note(f"{stage}: {done:,} of {total:,}, {left}", self.console)

    def _left(self, stage: str, done: int, total: int) -> str:
        begun, first = self._first[stage]
        if not first < done < total:
            return ""
        return f"about {duration((self.clock() - begun) / (done - first) * (total - done))} left"


def note(text: str, console: "Console | None" = None) -> None:
    """Print what is under way, on standard error, in lines of its columns, later ones indented;
    words stay whole.
    """
    console = console or stderr()
    lines = wrap(
        text, console.width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    console.print("\n".join(lines), soft_wrap=True)


def say(text: str) -> None:
    """Print how a command ended, in one line whatever its length."""
    stderr().print(text, soft_wrap=True)


def tell(*lines: str) -> None:
    """Print sentences on standard output, broken to its columns; a word stays whole, such as a path
    to be copied.
    """
    for line in lines:
        print(broken(line, columns()), flush=True)


def tell_commands(commands: Iterable[str]) -> None:
    """Print commands on standard output, one a line whatever its length: a shell may read them."""
    for command in commands:
        print(command, flush=True)


def print_history(explanation: "Explanation", verdict: Sequence[str] = ()) -> None:
    """The page of the terminal, below what to do first."""
    from ..history.explain import page

    for line in [*verdict, *page(explanation, columns())]:
        print(printable(line))


def shown_text(text: str) -> str:
    """Returns a text as standard output takes it: whole into a file or a pipe, and on a terminal
    without what would steer it.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        return text
    return "\n".join(printable(line) for line in text.split("\n"))


def stand_in_for_closed() -> None:
    """Opens the empty device for each of standard input, output and error that the caller closed.

    Else the next file that is opened takes its number, and what is printed lands in there.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:  # the lowest number that is free is taken
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
    # Python has set to None what was closed when it began; these stay open for the process's life.
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    if sys.stdout is None:
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def show_what_the_terminal_has() -> None:
    """Has standard output and error write a similar letter for each that their encoding lacks,
    where Python would end.

    One for one, so that lines keep their length.
    """
    for stream in (sys.stdout, sys.stderr):
        # A stream that another terminal was put under while it stood cannot be changed, and may
        # write what it can.
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):
                writes_like_letters(stream)


_SHOWN_AFTER_SECONDS = 1.0


class LateStages:
    """Show each stage once it takes longer than a second; it ends when the next one begins.

    Called with a stage, how much of it is done, and the total.
    """

    def __init__(self, display: StageDisplay) -> None:
        self.display = display
        self._name = ""
        self._done = 0
        self._total = 1
        self._shown = False
        self._timer = threading.Timer(0.0, lambda: None)

    def __enter__(self) -> "LateStages":
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def __call__(self, name: str, done: int, total: int) -> None:
        if name != self._name:
            self._end()
            self._name, self._shown = name, False
            self._timer = threading.Timer(_SHOWN_AFTER_SECONDS, self._show)
            self._timer.daemon = True
            self._timer.start()
        self._done, self._total = done, total
        if self._shown:
            self._show()

    def _show(self) -> None:
        self.display(self._name, self._done, self._total)
        self._shown = True

    def _end(self) -> None:
        if self._timer.ident is None:
            return
        self._timer.cancel()
        self._timer.join()
        if self._shown:
            self.display(self._name, self._total, self._total)
