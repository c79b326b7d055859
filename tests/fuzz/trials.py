"""Cases tried in processes of their own, with limits of time and memory: what became of each."""

import multiprocessing
import os
import resource
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from normscope.errors import UserError

MOST_SECONDS = 10
"""Of the processor, so that neighbours do not decide; thirty times as much by the clock."""
MOST_MEGABYTES = 1000
"""Above what the process had before."""
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case."""

    case: Any
    verdict: str
    """accepted, refused, or a finding: traceback, hang, memory, died, changed."""
    said: str

    @property
    def is_finding(self) -> bool:
        return self.verdict not in ("accepted", "refused")


def tried(
    cases: Iterable[Any], attempt: Callable[[Any], tuple[str, str]]
) -> Generator[Outcome, None, None]:
    """The outcome of `attempt(case)` for each case, in order, in a child that is replaced when it
    dies or hangs.

    The child ends with the iterator; whoever leaves it early closes it, or Python would wait for
    the child at its end.
    attempt: returns the verdict "accepted" or "changed", and what changed; raises UserError where
    it refuses.
    """
    child: _Child | None = None
    try:
        for case in cases:
            child = child or _Child(attempt)
            outcome = child.outcome(case)
            yield outcome
            if outcome.verdict in ("hang", "memory", "died"):
                child.end()
                child = None
    finally:
        if child is not None:
            child.end()


class _Child:
    def __init__(self, attempt: Callable[[Any], tuple[str, str]]) -> None:
        self.ours, theirs = _FORK.Pipe()
        self.process = _FORK.Process(target=_work, args=(theirs, attempt))
        self.process.start()
        theirs.close()

    def outcome(self, case: Any) -> Outcome:
        self.ours.send(case)
        began, cpu = time.monotonic(), _cpu_seconds(self.process.pid)
        while not self.ours.poll(0.5):
            spent = _cpu_seconds(self.process.pid) - cpu
            if spent > MOST_SECONDS or time.monotonic() - began > 30 * MOST_SECONDS:
                return Outcome(case, "hang", f"over {spent:.0f} s")
        try:
            verdict, said = self.ours.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return Outcome(case, "died", f"exit code {self.process.exitcode}")
        return Outcome(case, verdict, said)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.ours.close()


def _work(connection: Connection, attempt: Callable[[Any], tuple[str, str]]) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    # A bomb must not take the machine with it: four times what is a finding anyway.
    largest = _status("VmSize") + 4 * MOST_MEGABYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (largest, largest))
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        connection.send(_verdict(case, attempt))


def _verdict(case: Any, attempt: Callable[[Any], tuple[str, str]]) -> tuple[str, str]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts anew
    before = _status("VmRSS")
    try:
        verdict, said = attempt(case)
    except UserError as error:
        verdict, said = "refused", str(error)
        if "\n" in said or len(said) > 9000 or not said.isprintable():
            verdict, said = "traceback", f"a message that is no line: {said[:300]!r}"
    except BaseException:
        verdict, said = "traceback", traceback.format_exc()[-3000:]
    megabytes = (_status("VmHWM") - before) / 2**20
    if megabytes > MOST_MEGABYTES:
        return "memory", f"{megabytes:.0f} MB more ({verdict}: {said[:300]})"
    return verdict, said


def _status(name: str) -> int:
    """Bytes, of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def _cpu_seconds(pid: int | None) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
