"""The state of a run of a grid, as the pool and its display know it: read from what the run has
logged.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..optim import parse_duration
from ..train import StopRule
from ..train.config import DECIDED
from ..train.events import Event, event_of
from .grid import Cell

_MOST = 64
"""Stretches that are kept; of a longer run each is twice as long."""


@dataclass(slots=True)
class _LossCourse:
    """Means of values over stretches of updates, taken in one after the other in bounded memory."""

    updates_each: int = 1
    """Length of a stretch."""
    _sums: list[float] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)

    def add(self, update: int, value: float) -> None:
        """Take in the value of an update, which is counted from 0."""
        while update // self.updates_each >= _MOST:
            pairs = range(0, len(self._sums), 2)
            self._sums = [sum(self._sums[at : at + 2]) for at in pairs]
            self._counts = [sum(self._counts[at : at + 2]) for at in pairs]
            self.updates_each *= 2
        at = update // self.updates_each
        while len(self._sums) <= at:
            self._sums.append(0.0)
            self._counts.append(0)
        self._sums[at] += value
        self._counts[at] += 1

    def means(self, most: int) -> list[float]:
        """Returns at most `most` means in the order of updates, as many as there are stretches with
        a value.
        """
        known = [
            (total, count) for total, count in zip(self._sums, self._counts, strict=True) if count
        ]
        columns = min(most, len(known))
        means = []
        for i in range(columns):
            part = known[len(known) * i // columns : len(known) * (i + 1) // columns]
            total = sum(each for each, _ in part)
            means.append(total / sum(count for _, count in part))
        return means


@dataclass(slots=True)
class CellState:
    """The state of a cell while the pool runs."""

    cell: Cell
    updates: int | None = None
    """The updates of the whole run, where its configuration gives them."""
    status: str = "waiting"
    """waiting, waiting for another process, queued, running, halted, translating, stopped,
    finished, decided (stopped early), non-finite or failed."""
    update: int = 0
    nll_nats: float | None = None
    """The loss of the last validation, which was that of `nll_update`."""
    nll_update: int = 0
    message: str = ""
    """The reason why it failed or stopped, early or not; of a finished run, why its evaluation
    failed.
    """
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    epochs: float | None = None
    """The epochs of the whole run, where its configuration gives them."""
    validations: _LossCourse = field(default_factory=_LossCourse, repr=False)
    """The losses of its validations, and of its batches, in nats."""
    losses: _LossCourse = field(default_factory=_LossCourse, repr=False)
    decided_by: int = 0
    """The number of validations in a row at which a run that was stopped early was at chance."""
    _epoch: float = field(default=0.0, repr=False)
    _offset: int = field(default=0, repr=False)
    _first_look: tuple[int, float] | None = field(default=None, repr=False)
    _last_look: tuple[int, float] | None = field(default=None, repr=False)

    @property
    def over(self) -> bool:
        return self.status in ("finished", DECIDED, "non-finite", "failed")

    @property
    def total_updates(self) -> int | None:
        """The updates of the whole run: from its configuration, or from its epochs and the progress
        in them; None before that.
        """
        if self.updates is not None or self.epochs is None or not self._epoch:
            return self.updates
        total = self.epochs * self.update / self._epoch
        return max(self.update, round(total)) if math.isfinite(total) else None

    def course(self, most: int) -> list[float]:
        """Returns the loss over updates in at most so many means: of its validations, or of its
        batches before two of these.
        """
        means = self.validations.means(most)
        return means if len(means) > 1 else self.losses.means(most)

    @property
    def updates_per_second(self) -> float | None:
        """Since the pool has seen it train, validations included; None until it has seen two
        updates.
        """
        if (
            self._first_look is None
            or self._last_look is None
            or self._last_look[0] <= self._first_look[0]
        ):
            return None
        (before, since), (now, until) = self._first_look, self._last_look
        return (now - before) / (until - since)

    @property
    def seconds_left(self) -> float | None:
        """The seconds until its last update, at the rate so far; None where that is not known."""
        rate, total = self.updates_per_second, self.total_updates
        return None if rate is None or total is None else max(0, total - self.update) / rate

    def reopen(self, rule: StopRule | None) -> None:
        """A run that was stopped early goes on, unless it would be stopped by this rule too."""
        if self.status == DECIDED and (rule is None or self.decided_by < rule.validations):
            self.status, self.message = "waiting", ""

    def begin(self, halted: int | None = None) -> None:
        """Notes that the run trains; its rate is measured from here on where it did not train
        before. halted: the id of its process, where it is halted.
        """
        if halted is not None:
            self.status = "halted"
            self.message = (
                f"process {halted} was halted by a signal; kill -CONT {halted} lets it go on"
            )
        elif self.status != "running":
            self.status = "running"
            self.message = ""
            self._first_look = None

    def read_new_events(self) -> None:
        """Take in what the run has logged since the last look."""
        file = self.cell.folder.metrics_file
        if not file.is_file():
            return
        if file.stat().st_size < self._offset:
            self._offset = 0  # a resumed run has gone back to its checkpoint
        if not self._offset:
            self.validations, self.losses = _LossCourse(), _LossCourse()
        before = self.update
        with file.open("rb") as stream:
            stream.seek(self._offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                try:
                    self._take(event_of(line))
                # Gone back and on again meanwhile, so that it is all read next time; or no line of
                # ours.
                except ValueError:
                    self._offset = 0
                    break
                self._offset += len(line)
                if self.status == "queued":
                    self.begin()  # the engine has found a place for it
        if self.status == "running" and self.update != before:
            self._look()

    def _look(self) -> None:
        self._last_look = (self.update, self.clock())
        if self._first_look is None or self.update < self._first_look[0]:
            self._first_look = self._last_look

    def _take(self, event: Event) -> None:
        self.update = event["update"]
        if event["event"] == "update":
            self._epoch = event.get("epoch", 0.0)
            if "nll_nats" in event:
                self.losses.add(self.update, event["nll_nats"])
            if self.over:
                self.status = "waiting"  # it has been given more updates since
        elif event["event"] == "validation" and "nll_nats" in event:
            self.nll_nats, self.nll_update = event["nll_nats"], event["update"]
            self.validations.add(self.update, event["nll_nats"])
        elif event["event"] in ("non-finite", DECIDED):
            self.status, self.message = event["event"], event.get("reason", "")
            self.decided_by = event.get("validations", 0)
        # A run that has been given more updates since is not finished.
        elif event["event"] == "finished" and self.update >= (self.updates or 0):
            self.status, self.message = event["event"], ""


def looked_at(cells: Iterable[Cell], updates: int | None, rule: StopRule | None) -> list[CellState]:
    """Returns the states of cells whose runs nobody trains yet.

    updates: those of every cell's whole run; None for what its configuration says. rule: may leave
    open a run that was stopped early (`CellState.reopen`).
    """
    states = []
    for cell in cells:
        number, unit = parse_duration(cell.config.train.duration)
        stated = int(number) if unit == "updates" else None
        state = CellState(
            cell, updates or stated, epochs=float(number) if unit == "epochs" else None
        )
        state.read_new_events()
        state.reopen(rule)
        states.append(state)
    return states


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The progress of a grid as a whole."""

    update: int
    updates: int | None
    """The updates of all runs together; None where those of one are not known."""
    updates_per_second: float | None
    """The rate of all runs that train, together."""
    seconds_left: float | None


def outlook(states: Sequence[CellState]) -> _Outlook:
    """Returns the progress of all runs together, and the time that they take from here at the rate
    of those that train.
    """
    open_states = [state for state in states if not state.over]
    rates = [
        rate for state in states if state.status == "running" and (rate := state.updates_per_second)
    ]
    done, total = 0, 0
    known = all(state.over or state.total_updates is not None for state in states)
    for state in states:
        done += state.update
        # A run that has ended early takes no more updates.
        total += state.update if state.over else state.total_updates or 0
    left = None
    if known and rates:
        # The longest of those under way may outlast a fair share of the rest.
        left = max((total - done) / sum(rates), *(s.seconds_left or 0.0 for s in open_states), 0.0)
    return _Outlook(done, total if known else None, sum(rates) or None, left)
