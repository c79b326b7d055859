"""Sees many errands through, on whichever engine: their order, who is waited for, and how all of
it ends.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..processes.surroundings import is_held
from ..signals import Interrupted, StopRequest
from .seam import Engine, Future, Job

_POLL_SECONDS = 0.1
_POLL_SHARE = 0.05
_MOST_POLL_SECONDS = 2.0
"""The largest time between two questions to all futures, and the longest that a signal waits for an
answer.
"""
_WATCH_SECONDS, _WATCH_SHARE = 0.5, 0.02
"""The seconds between two looks at all errands, and the largest share of the time that these take:
very many are examined more seldom.
"""
_SAVED = "after every run under way has saved"
_OUTLIVED = "; runs in the queue go on, and the same command looks after them again"


class Errand(ABC):
    """The work on a cell: jobs, one after the other."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder that its jobs lock."""

    @abstractmethod
    def next_job(self) -> Job:
        """Returns the job that begins now."""

    @abstractmethod
    def begin(self, *, queued: bool) -> None:
        """Notes that its job begins. queued: as of an engine that has a queue."""

    @abstractmethod
    def end(self, code: int) -> bool:
        """Notes how its job has ended; tells whether another is to follow."""

    @abstractmethod
    def fail(self, why: str) -> None:
        """Notes that its job could not begin, which ends it all."""

    def wait(self) -> None:
        """Notes that another process has its folder, and is waited for."""
        return

    def look(self) -> None:
        """Takes in how far its job is."""
        return

    def stop(self, *, goes_on: bool) -> None:
        """Notes that nobody looks after its job any more. goes_on: whether the job does."""
        return


@dataclass(slots=True)
class _Begun:
    """An errand, and its job; None where that could not begin."""

    errand: Errand
    future: Future | None


def drive(errands: Iterable[Errand], engine: Engine, watch: Callable[[], None]) -> None:
    """Sees every errand through, as many at a time as the engine has room for. One whose folder
    another process has is waited for.

    watch: called twice a second at most. Raises Interrupted after a signal that asks for an end,
    when every job under way has saved, or is left going by an engine that is outlived.
    """
    waiting = deque(errands)
    running: list[_Begun] = []
    next_watch = 0.0
    try:
        with StopRequest() as stop, _unless_asked_to(stop):
            while (waiting or running) and stop.signal_number is None:
                most = len(waiting) if engine.at_once is None else engine.at_once - len(running)
                for errand in _free(waiting, most):
                    running.append(_begun(errand, engine))
                if (begun := time.monotonic()) >= next_watch:
                    for one in running:
                        one.errand.look()
                    watch()
                    next_watch = begun + max(
                        _WATCH_SECONDS, (time.monotonic() - begun) / _WATCH_SHARE
                    )
                asked = time.monotonic()
                running = [one for one in running if _goes_on(one, engine)]
                taken = (time.monotonic() - asked) / _POLL_SHARE
                time.sleep(min(max(_POLL_SECONDS, taken), _MOST_POLL_SECONDS))
        if stop.signal_number is not None:
            _stop(running, engine)
            watch()
            raise Interrupted(stop.signal_number, _OUTLIVED if engine.outlived else _SAVED)
    finally:
        _stop(running, engine)
    watch()


@contextmanager
def _unless_asked_to(stop: StopRequest) -> Iterator[None]:
    """A context that ends where a signal did: some disks have a look at a file fail then, which
    Python asks once.
    """
    try:
        yield
    except InterruptedError:
        if stop.signal_number is None:
            raise


def _free(waiting: deque[Errand], most: int) -> list[Errand]:
    """Takes the first so many whose folder no other process has, such as one whose parent was
    killed and that saves; the others stay, in their order.
    """
    free: list[Errand] = []
    held: list[Errand] = []
    while waiting and len(free) < most:
        errand = waiting.popleft()
        if is_held(errand.folder):
            errand.wait()
            held.append(errand)
        else:
            free.append(errand)
    waiting.extendleft(reversed(held))
    return free


def _begun(errand: Errand, engine: Engine) -> _Begun:
    job = errand.next_job()
    errand.begin(queued=engine.queues)
    try:
        return _Begun(errand, engine.start(job))
    except OSError as error:
        errand.fail(f"its process could not be started: {error.strerror or error}")
        return _Begun(errand, None)


def _goes_on(one: _Begun, engine: Engine) -> bool:
    """Tells whether the errand's job goes on, or its next one, which begins then."""
    if one.future is None:
        return False
    code = one.future.code()
    if code is None:
        return True
    if not one.errand.end(code):
        return False
    one.future = _begun(one.errand, engine).future
    return one.future is not None


def _stop(running: list[_Begun], engine: Engine) -> None:
    """Asks every job to save and end, and waits for it; an engine that is outlived leaves them
    going.
    """
    engine.stop([one.future for one in running if one.future is not None])
    for one in running:
        one.errand.stop(goes_on=engine.outlived)
    running.clear()
