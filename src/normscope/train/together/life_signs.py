"""Who of the processes of a training is still there.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

BEAT_SECONDS = 1.0
LATE_SECONDS = 25.0
"""Without a beat a process counts as halted: torchrun takes 30 seconds more to kill it, and a
minute is what all of it may take."""
_GRACE_SECONDS = 10.0
"""That a process has to say itself that another one has gone, before the thread ends it."""
_LAUNCHER_SECONDS = 60.0
"""That a process has to save where the launcher has gone."""
_LEFT, _DONE = "left", "done"


class Store(Protocol):
    """What is used of torch's stores."""

    def set(self, key: str, value: str) -> None: ...

    def multi_get(self, keys: list[str]) -> list[bytes]: ...

    def add(self, key: str, amount: int) -> int: ...


@dataclass(frozen=True, slots=True)
class _Known:
    """Who a process is, as it has told the others."""

    pid: int
    host: str


class LifeSigns:
    """Beats for this process, and looks after the others from `begin` to `end`."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        late_seconds: float = LATE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.rank = rank
        self.size = size
        self.late_seconds, self.clock = late_seconds, clock
        self._others = [other for other in range(size) if other != rank]
        self._known: dict[int, _Known] = {}
        self._seen: dict[int, tuple[bytes, float]] = {}
        """By rank, the last beat that differed from the one before, and when that was seen."""
        self._looked = clock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="normscope-life-signs")
        self._beats = 0

    def introduce(self) -> None:
        """Tells the others who this process is, and that it is there."""
        me = {"pid": os.getpid(), "host": socket.gethostname()}
        self.store.set(f"who/{self.rank}", json.dumps(me))
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

    def lost(self) -> str | None:
        """Returns in words which of the others has gone or does not answer; None where all are
        there. Raises RuntimeError where the store has gone.
        """
        beats = self.store.multi_get([f"beat/{other}" for other in self._others])
        now = self.clock()
        if now - self._looked > self.late_seconds / 2:
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
                return f"{self._named(other)} has ended"
            if now - since > self.late_seconds:
                return f"{self._named(other)} has not answered for {now - since:.0f} seconds"
        return None

    def found(self) -> str | None:
        """Returns who is lost, and waits until it is known where a call to the others has failed;
        None where nobody is.
        """
        until = self.clock() + self.late_seconds + 2 * BEAT_SECONDS
        while self.clock() < until:
            try:
                if (said := self.lost()) is not None:
                    return said
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

    def _beat(self) -> None:
        self._beats += 1
        self.store.set(f"beat/{self.rank}", str(self._beats))

    def _run(self) -> None:
        since: float | None = None
        while not self._ended.wait(BEAT_SECONDS):
            try:
                self._beat()
                said = self.lost()
            except RuntimeError:
                self._without_launcher()
                return
            if said is None:
                since = None
                continue
            since = self.clock() if since is None else since
            halted = "has not answered" in said
            if halted or self.clock() - since > _GRACE_SECONDS:
                self._leave(said)

    def _without_launcher(self) -> None:
        """Have the training save and end, as SIGTERM does."""
        if self._ended.is_set():
            return
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._ended.wait(_LAUNCHER_SECONDS):
            self._leave(self._keeper())

    def _leave(self, said: str) -> None:
        """End this process, whose main thread waits in torch for somebody who does not come."""
        if self.tells():
            with contextlib.suppress(OSError):
                os.write(
                    sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{ended(said)}\n".encode()
                )
        os._exit(1)

    def _keeper(self) -> str:
        """Says that who keeps the store, by which all are known, has ended."""
        if _has_agent():
            return "torchrun, which started the processes, has ended"
        return f"{self._named(0)} has ended"

    def _named(self, rank: int) -> str:
        known = self._known.get(rank)
        at = f" ({known.pid} on {known.host})" if known else ""
        return f"process {rank} of {self.size}{at}"

    def _is_dead(self, rank: int) -> bool:
        """Whether it is of this machine and has ended; False where that is not known."""
        known = self._known.get(rank)
        if known is None or known.host != socket.gethostname():
            return False
        return not lives(known.pid)


def _has_agent() -> bool:
    """Whether torchrun keeps the store, and not the first process."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def ended(said: str) -> str:
    """Returns the one line that tells why a training has ended: said is as of `LifeSigns.lost`."""
    return f"stopped: {said}; the same command goes on from the newest checkpoint"


def lives(pid: int) -> bool:
    """Tells whether a process of this machine has not ended; one that nobody has waited for has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return True
    state: Sequence[str] = stat.rpartition(")")[2].split()[:1]
    return state not in (["Z"], ["X"])
