"""`normscope watch` follows runs that other processes train; `normscope report` writes the report of runs."""

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..settings.files import is_run
from ..signals import StopRequest
from .console import note
from .display import GridDisplay, in_words, print_summary, screen, table, tally, whole
from .options import described_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ..compare.compare import LivePage
    from ..compare.state import CellState


@described_by()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...")],
    out: Path | None = None,
    title: str | None = None,
) -> None:
    """Write the report of a comparison, a demo or a run at any time, also while it is running.

    Runs of several folders make one report where they have the same model and data.

    For example:

    \b
      normscope report runs/compare-my

    folders: Folders of comparisons, or of runs. out: Folder for the report. By default the comparison's own; report/ in
    a run's. title: Title of the report. By default the comparison's.
    """
    from ..compare.compare import report as write_report

    if len(folders) > 1 and out is None:
        raise UserError("several folders make one report: say with --out where to write it")
    first = folders[0]
    page, file = write_report(folders, out or (first / "report" if is_run(first) else first), title=title)
    print_summary(page, file)


_LOOK_EVERY_SECONDS = 0.5
_REST = 10.0
"""Times as long as a look has taken, before the next one: many runs on a slow disk are looked at less often."""
_PLAIN_EVERY_SECONDS = 10.0
_WIDE = 200
"""Columns of a table that is written into a file or a pipe."""
_MOST_TROUBLES = 5


@described_by()
def watch(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER")],
    once: bool = False,
    html: bool = False,
    out: Path | None = None,
) -> None:
    """Follow the runs below a folder, from any machine that sees it.

    It shows which wait, run, have failed and at which loss, and when they will end; also after the command that began
    them has gone. Nothing of the runs is locked or written. It ends when all are over, or with Ctrl-C. With --html an
    open report follows as well, and keeps what its reader has chosen.

    For example:

    \b
      normscope watch runs/compare-my

    folder: Folder of a comparison, a study or a run. once: Print the table of all runs once, and end. html: Keep the
    report of a comparison or a run current as well: its report.html, written anew. out: Folder for that report. By
    default the comparison's own; report/ in a run's.
    """
    if out is not None and not html:
        raise UserError(f"--out {out} is where --html writes the report; give --html too, or leave it out")
    try:
        _watch(folder, out, once=once, html=html)
    except KeyboardInterrupt:  # a second one, which does not wait for the last page
        raise typer.Exit(128 + signal.SIGINT) from None


def _watch(folder: Path, out: Path | None, *, once: bool, html: bool) -> None:
    from ..compare.watching import RunsWatch

    watched = RunsWatch(folder)
    states = watched.look()
    page = _page(folder, out) if html else None
    if once:
        if page is not None:
            page.write_last()
        _print(states)
        return
    from .console import stderr

    with _WatchDisplay(stderr()) as display, StopRequest() as stop:
        display(states)
        if page is not None:
            page.write_if_due(watched.changes)
            display.say(f"report: {page.file}")
        took = 0.0
        while not watched.over and stop.signal_number is None:
            time.sleep(max(_LOOK_EVERY_SECONDS, _REST * took))
            begun = time.monotonic()
            states = watched.look()
            took = time.monotonic() - begun
            display(states)
            if page is not None:
                page.write_if_due(watched.changes)
    if page is not None:
        page.write_last()
    if stop.signal_number not in (None, signal.SIGINT):
        raise typer.Exit(128 + stop.signal_number)
    _print(states)
    if not watched.over:
        display.say("no longer watched; the runs go on as they do")


def _page(folder: Path, out: Path | None) -> "LivePage":
    """Where `normscope report` writes it."""
    from ..compare.compare import LivePage
    from ..settings.files import is_run

    return LivePage(folder, (out or (folder / "report" if is_run(folder) else folder)) / "report.html")


def _print(states: "Sequence[CellState[Any]]") -> None:
    """The table of all runs, and what went wrong in full, on standard output."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=_WIDE)
    console.print(table(states, console))
    for line in [*troubles(states), said_of_all(states)]:
        note(line, console)


def said_of_all(states: "Sequence[CellState[Any]]") -> str:
    """How many runs are in each state, how far they are together, and when they will end."""
    from ..compare.state import outlook

    left = outlook(states).seconds_left
    ends = "" if left is None else f", ends {_at(left)}"
    return f"{tally(states)}; {whole(states)}{ends}"


def troubles(states: "Sequence[CellState[Any]]", most: int | None = None) -> list[str]:
    """A line for each run that failed, did not stay finite or has stopped; of more than `most`, those and a count."""
    from ..report.words import printable

    lines = [
        printable(f"{state.status}: {state.cell.name}: {state.message}")
        for state in states
        if state.message and state.status in ("failed", "halted", "non-finite", "decided", "stopped")
    ]
    if most is None or len(lines) <= most:
        return lines
    return [*lines[:most], f"and {len(lines) - most} more; --once prints them all"]


class _WatchDisplay(GridDisplay):
    """A live table on a terminal; elsewhere a line every ten seconds, and one for each run that changes its state."""

    def __init__(self, console: "Console") -> None:
        super().__init__(console)
        self._statuses, self._last_plain = dict[Path, str](), -_PLAIN_EVERY_SECONDS

    def __call__(self, states: "Sequence[CellState[Any]]") -> None:
        """Show what the runs are doing."""
        if self.live is not None:
            from rich.text import Text

            cut = [Text(line, no_wrap=True, overflow="crop") for line in troubles(states, _MOST_TROUBLES)]
            self.live.update(screen(states, self.console, *cut, said_of_all(states)), refresh=True)
            return
        for state in states:
            path = state.cell.folder.path
            # What there is at first is in the line about all.
            if self._statuses.setdefault(path, state.status) != state.status:
                self._statuses[path] = state.status
                self.say(f"{state.cell.name}: {in_words(state)}")
        if self.clock() - self._last_plain >= _PLAIN_EVERY_SECONDS:
            self._last_plain = self.clock()
            self.say(said_of_all(states))

    def say(self, text: str) -> None:
        """Print what has changed."""
        note(text, self.console)


def _at(seconds_from_now: float) -> str:
    """The time of day, with the date where it is another day's."""
    now = time.time()
    then, today = time.localtime(now + seconds_from_now), time.localtime(now)
    return time.strftime("at %H:%M" if then[:3] == today[:3] else "on %Y-%m-%d at %H:%M", then)
