"""A pool of processes that ends within seconds wherever its work stands: what is being made is
given up, what is queued is not begun.

The pool of the standard library waits for what its processes are making, which may take minutes.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

_GIVE_UP = signal.SIGUSR1
"""Asks a process of a pool to give up what it makes. SIGTERM stays what ends it, since the standard
library sends that to the others when one of them has died."""
_PATIENCE_SECONDS = 2.0
"""For what is being made to clear up behind itself; a library of another language may not."""


class _GivenUp(BaseException):
    """A request to give up what a process of a pool makes; no Exception, so that nothing takes it
    for a failure of its own.
    """


class EndingPool:
    """Processes that do what `submit` is given, each thing whole or given up."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Returns what will be known of the function of these arguments, which must be
        picklable.
        """
        return self._pool.submit(_done, function, arguments)


@contextmanager
def ending_pool(processes: int, prepare: Callable[[], None] | None = None) -> Iterator[EndingPool]:
    """A context with a pool of so many processes. One that ends by an exception, such as a
    signal's, gives up what is not done.

    prepare: called first in each process, and so picklable.
    """
    # Spawned, not forked: a fork copies the locks of threads that do not exist in the child.
    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(prepare,),
    )
    before = set(multiprocessing.active_children())
    try:
        yield EndingPool(pool)
    except BaseException:
        # It waits for its processes, which end once they have heard both.
        ending = threading.Thread(target=pool.shutdown, kwargs={"cancel_futures": True})
        ending.start()
        _give_up([one for one in multiprocessing.active_children() if one not in before])
        ending.join()
        raise
    pool.shutdown()


def _give_up(processes: list[BaseProcess]) -> None:
    """Ends every process: asks it first, and sends SIGTERM where it does not hear."""
    for process in processes:
        _send(process, _GIVE_UP)
    until = time.monotonic() + _PATIENCE_SECONDS
    left = [process.sentinel for process in processes]
    while left and (seconds := until - time.monotonic()) > 0:
        ended = wait(left, timeout=seconds)
        left = [sentinel for sentinel in left if sentinel not in ended]
    for process in processes:
        if process.sentinel in left:
            process.terminate()


def _send(process: BaseProcess, number: int) -> None:
    # One that has ended has been waited for by whoever asked for the living ones.
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


_working = False
"""True while this process, one of a pool, makes something that it can give up."""
_unwanted = False
"""True once it was asked to."""


def _begin(prepare: Callable[[], None] | None) -> None:
    """Leaves what the terminal sends to the parent, which ends its pool in order; and ends this
    process when the parent was killed.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(_GIVE_UP, _noted)

    def watch(parent: Any) -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, args=[multiprocessing.parent_process()], daemon=True).start()
    if prepare is not None:
        prepare()


def _noted(number: int, frame: FrameType | None) -> None:
    global _unwanted
    _unwanted = True
    # Elsewhere a process may hold a lock of the pool, which the others wait for.
    if _working:
        raise _GivenUp


def _done(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Returns what the function returns; None where it is no longer wanted, which nobody asks
    for.
    """
    global _working
    try:
        _working = True
        if _unwanted:
            return None
        return function(*arguments)
    except _GivenUp:
        return None
    finally:
        _working = False
