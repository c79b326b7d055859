"""The signs of life by which the processes of a training know who is still there.

Each beats in the store that torchrun keeps, and looks at the beats of the others: one that has died
or was halted leaves the others in a call of torch's that none of them can leave by itself. What
ends them is a thread of their own, which Python lets run while torch waits.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

BEAT_SECONDS = 1.0
SILENT_SECONDS = 20.0
"""Torchrun takes 30 seconds more to kill who is halted where nobody else does, and a minute is what
all of it may take."""
_GRACE_SECONDS = 10.0
"""The seconds that a process has to say itself that another one has gone, before the thread ends
it.
"""
_LAUNCHER_SECONDS = 60.0
"""The seconds that a process has to save where the launcher has gone."""
_LEFT, _DONE = "left", "done"


class Store(Protocol):
    """The methods of torch's stores that are used here."""

    def set(self, key: str, value: str) -> None: ...

    def multi_get(self, keys: list[str]) -> list[bytes]: ...

    def add(self, key: str, amount: int) -> int: ...


@dataclass(frozen=True, slots=True)
class _Known:
    """The identity of a process, as it has told the others."""

    pid: int
    host: str
    began: str
    """The time at which it began, as its system tells; empty where that is not known. Numbers are
    given again.
    """


@dataclass(frozen=True, slots=True)
class Lost:
    """A process that cannot go on."""

    rank: int
    words: str
    """The words for it, such as "process 1 of 2 (4711 on node-a) has ended"."""
    is_halted: bool
    """True where it may still be there."""


class LifeSigns:
    """Beats for this process, and looks after the others from `begin` to `end`."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        silent_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """silent_seconds: without a beat for so long a process counts as halted."""
        self.store = store
        self.rank = rank
        self.size = size
        self.silent_seconds = silent_seconds
        self.clock = clock
        self._others = [other for other in range(size) if other != rank]
        self._known: dict[int, _Known] = {}
        self._seen: dict[int, tuple[bytes, float]] = {}
        """The last beat of each rank that differed from the one before, and when that was seen."""
        self._looked = clock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="normscope-life-signs")
        self._beats = 0

    def introduce(self) -> None:
        """Tells the others who this process is, and that it is there."""
        me = _Known(os.getpid(), socket.gethostname(), began(os.getpid()))
        self.store.set(f"who/{self.rank}", json.dumps(asdict(me)))
        self._beat()

    def begin(self) -> None:
        """Begins to look after the others, all of whom are there."""
        told = self.store.multi_get([f"who/{other}" for other in self._others])
        for other, line in zip(self._others, told, strict=True):
            self._known[other] = _Known(**json.loads(line))
        self._thread.start()

    def end(self, *, orderly: bool) -> None:
        """Looks after nobody any more. orderly: whether all others end as this process does."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with contextlib.suppress(RuntimeError):
            self.store.set(f"beat/{self.rank}", _DONE if orderly else _LEFT)

    def lost(self) -> Lost | None:
        """Returns which of the others has gone or does not answer; None where all are there. Raises
        RuntimeError where the store has gone.
        """
        beats = self.store.multi_get([f"beat/{other}" for other in self._others])
        now = self.clock()
        if now - self._looked > self.silent_seconds / 2:
            # This process was halted itself, and so may have been the others: Ctrl-Z halts all.
            self._seen.clear()
        self._looked = now
        for other, beat in zip(self._others, beats, strict=True):
            before, since = self._seen.get(other, (b"", now))
            if beat != before:
                self._seen[other] = beat, now
                since = now
            if beat == _DONE.encode():
                continue
            if beat == _LEFT.encode() or self._is_dead(other):
                return self._has_ended(other)
            if now - since > self.silent_seconds:
                words = f"{self._named(other)} has not answered for {now - since:.0f} seconds"
                return Lost(other, words, is_halted=True)
        return None

    def found(self) -> Lost | None:
        """Returns who is lost, and waits until it is known where a call to the others has failed;
        None where nobody is.
        """
        until = self.clock() + self.silent_seconds + 2 * BEAT_SECONDS
        while self.clock() < until:
            try:
                if (lost := self.lost()) is not None:
                    return lost
            except RuntimeError:
                return self._keeper()
            time.sleep(BEAT_SECONDS / 5)
        return None

    def tells(self) -> bool:
        """Tells whether this process is the one that says what has happened: the first to ask."""
        try:
            return self.store.add("told", 1) == 1
        except RuntimeError:
            return self.rank == (0 if _has_agent() else 1)

    def end_halted(self, lost: Lost) -> None:
        """Kills who is halted on this machine, where nobody waits for it any more. It would keep
        the run's folder, and its launcher, for as long as it stands still.
        """
        known = self._known.get(lost.rank)
        if not lost.is_halted or known is None or not known.began:
            return
        if self._is_here(known) and began(known.pid) == known.began:
            with contextlib.suppress(OSError):
                os.kill(known.pid, signal.SIGKILL)

    def _beat(self) -> None:
        self._beats += 1
        self.store.set(f"beat/{self.rank}", str(self._beats))

    def _run(self) -> None:
        since: float | None = None
        while not self._ended.wait(BEAT_SECONDS):
            try:
                self._beat()
                lost = self.lost()
            except RuntimeError:
                self._without_launcher()
                return
            if lost is None:
                since = None
                continue
            since = self.clock() if since is None else since
            if lost.is_halted or self.clock() - since > _GRACE_SECONDS:
                self._leave(lost)

    def _without_launcher(self) -> None:
        """Has the training save and end, as SIGTERM does."""
        if self._ended.is_set():
            return
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._ended.wait(_LAUNCHER_SECONDS):
            self._leave(self._keeper())

    def _leave(self, lost: Lost) -> None:
        """End this process, whose main thread waits in torch for somebody who does not come."""
        if self.tells():
            line = f"{ended(lost.words)}\n"
            with contextlib.suppress(OSError):
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, line.encode())
        self.end_halted(lost)
        os._exit(1)

    def _keeper(self) -> Lost:
        """Says that who keeps the store, by which all are known, has ended."""
        if _has_agent():
            words = "torchrun, which started the processes, has ended"
            return Lost(0, words, is_halted=False)
        return self._has_ended(0)

    def _has_ended(self, rank: int) -> Lost:
        return Lost(rank, f"{self._named(rank)} has ended", is_halted=False)

    def _named(self, rank: int) -> str:
        known = self._known.get(rank)
        at = f" ({known.pid} on {known.host})" if known else ""
        return f"process {rank} of {self.size}{at}"

    def _is_dead(self, rank: int) -> bool:
        """Tells whether a process of this machine has ended; False where that is not known."""
        known = self._known.get(rank)
        return known is not None and self._is_here(known) and not lives(known.pid)

    def _is_here(self, known: _Known) -> bool:
        return known.host == socket.gethostname()


def _has_agent() -> bool:
    """Tells whether torchrun keeps the store, and not the first process."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def ended(said: str) -> str:
    """Returns the one line that tells why a training has ended: said is as of `Lost.words`."""
    return f"stopped: {said}; the same command goes on from the newest checkpoint"


def lives(pid: int) -> bool:
    """Tells whether a process of this machine has not ended; one that nobody has waited for has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _told_of(pid, _STATE) not in ("Z", "X")


def began(pid: int) -> str:
    """Returns when a process of this machine began, as its system counts; empty where that is not
    known.
    """
    return _told_of(pid, _BEGAN)


_STATE, _BEGAN = 0, 19
"""Places in /proc/PID/stat behind the name, as of proc(5), where they are fields 3 and 22."""


def _told_of(pid: int, place: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[place]
