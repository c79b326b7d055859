"""Signals: a command is asked to end, once or twice, at any operation and at any time, and says so
in one line.
"""

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from .bench import Bench
from .disk import Tree
from .notified import Ended
from .operations import Operation
from .places import Place, taken
from .verdicts import Trial, Verdict, goes_on, left_over, wrong_end
from .works import Work, whole_checkpoints

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TIMES = 24


@dataclass(frozen=True, slots=True)
class Stop:
    """A signal, or two in a row, at an operation or after a share of the time that the command
    takes.
    """

    number: int
    times: int
    operation: Place | None = None
    share: float = 0.0

    def __str__(self) -> str:
        when = (
            str(self.operation) if self.operation is not None else f"{self.share:.2f} of the time"
        )
        return f"{'twice ' * (self.times - 1)}{signal.Signals(self.number).name} at {when}"


def stops(
    bench: Bench, work: Work, *, every: int = 1, offset: int = 0, alike: bool = False
) -> Iterator[Trial]:
    """Every `every`th signal, to be judged; alike: at operations that do the same, at the first and
    the last.
    """
    wanted, before, operations = bench.undisturbed(work)
    bench.lay(before)
    began = time.monotonic()
    bench.do(work)
    seconds = time.monotonic() - began
    asked = [
        Stop(n, times, operation=at)
        for at in taken(operations, alike=alike).values()
        for n in _SIGNALS
        for times in (1, 2)
    ]
    asked += [
        Stop(n, times, share=at / _TIMES)
        for at in range(1, _TIMES)
        for n in _SIGNALS
        for times in (1, 2)
    ]

    def judged(stop: Stop) -> Verdict:
        bench.lay(before)
        return _judged(bench, work, wanted, stop, _stopped(bench, work, stop, seconds))

    for stop in asked[offset::every]:
        yield Trial(str(stop), partial(judged, stop))


def _stopped(bench: Bench, work: Work, stop: Stop, seconds: float) -> tuple[Ended, int]:
    """How the command ended, and its last whole checkpoint when it was asked to."""
    pids: list[int] = []
    whole = -1

    def send() -> None:
        nonlocal whole
        with contextlib.suppress(
            FileNotFoundError
        ):  # removed while we look, which only a signal at a time can meet
            whole = whole_checkpoints(bench.state())
        for _ in range(stop.times):
            try:
                os.kill(pids[0], stop.number)
            except ProcessLookupError:
                return
            time.sleep(0.01 * (stop.times - 1))

    def decide(place: Place, operation: Operation) -> None:
        if place == stop.operation:
            send()

    timer = threading.Timer(stop.share * seconds, send)

    def begun(pid: int) -> None:
        pids.append(pid)
        if stop.operation is None:
            timer.start()

    ended = (
        bench.disturb(work, decide, begun=begun)
        if stop.operation is not None
        else bench.do(work, begun=begun)
    )
    timer.cancel()
    return ended, whole


def _judged(bench: Bench, work: Work, wanted: Tree, stop: Stop, end: tuple[Ended, int]) -> Verdict:
    ended, whole = end
    after = bench.state()
    fault = str(stop)
    # A command that was about to end has done what it should. A second signal ends a command at
    # once, as a kill does: without a line, where the first one had not come so far.
    killed = stop.times == 2 and ended.code == -stop.number
    problem, detail = wrong_end(ended, after, (0, 128 + stop.number, ended.code if killed else 0))
    if (
        not problem
        and ended.code
        and not killed
        and len(re.findall(r"stopped by|interrupted", ended.said)) != 1
    ):
        problem, detail = "no line", ended.said[-300:]
    if not problem and whole_checkpoints(after) < whole:
        problem, detail = "lost", f"checkpoint {whole}"
    # What a second signal leaves is cleared by the next command.
    if not problem and stop.times == 1 and (left := left_over(after)):
        problem, detail = "left over", left
    if problem:
        return Verdict(work.name, fault, problem, detail)
    return goes_on(bench, work, wanted, fault)
