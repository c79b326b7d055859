"""Cells trained side by side, in processes of one thread each, or one by one in this process."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import UserError, option
from ..processes.surroundings import VARIABLE, hold_lifeline
from .cells import TuningCell
from .opened import FineTuningConfig, OpenedSearch, open_search

Told = Callable[[int], None]
"""Called now and then with how many updates have been trained."""
_LOOK_SECONDS = 0.5


def train_cells(
    opened: OpenedSearch, cells: Sequence[TuningCell], processes: int, told: Told
) -> None:
    """Trains every cell and keeps what it came to, as soon as it is there.

    processes: cells at a time. Raises UserError where a process was killed; whatever ends this
    ends the cells under way, of which nothing is kept.
    """
    if not cells:
        return
    if min(processes, len(cells)) == 1:
        _one_by_one(opened, cells, told)
        return
    with _workers(opened.config, min(processes, len(cells))) as (pool, counter):
        futures = [pool.submit(_train, cell) for cell in cells]
        # Time is reckoned from the first update on: before it, libraries are loaded.
        _wait_for(futures, lambda: told(counter.value) if counter.value else None)


def _one_by_one(opened: OpenedSearch, cells: Sequence[TuningCell], told: Told) -> None:
    done, shown = 0, time.monotonic()

    def updated() -> None:
        nonlocal done, shown
        done += 1
        if time.monotonic() - shown > _LOOK_SECONDS:
            shown = time.monotonic()
            told(done)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the processes of a pool have it: the same bits
    try:
        for cell in cells:
            opened.train(cell, updated)
            told(done)
    finally:
        torch.set_num_threads(threads)


def _wait_for(futures: Sequence["Future[None]"], look: Callable[[], None]) -> None:
    left = set(futures)
    while left:
        done, left = wait(left, timeout=_LOOK_SECONDS)
        look()
        for future in done:
            try:
                future.result()
            except BrokenProcessPool as error:
                raise UserError(
                    "a process of the search was killed, perhaps for want of memory; what is "
                    "finished is kept: run the same command again, with a smaller "
                    f"{option('processes')}"
                ) from error


@contextmanager
def _workers(config: FineTuningConfig, processes: int) -> Iterator[tuple[ProcessPoolExecutor, Any]]:
    """A pool, and a number that its processes raise by one for every update."""
    # Spawned: a forked process would inherit torch's threads half-way.
    context = multiprocessing.get_context("spawn")
    counter, stop = context.Value("Q", 0), context.Event()
    pool = ProcessPoolExecutor(
        processes,
        mp_context=context,
        initializer=_begin,
        initargs=(config, counter, stop, os.getpid()),
    )
    try:
        yield pool, counter
    finally:
        stop.set()  # a cell that is under way ends with its next update
        pool.shutdown(cancel_futures=True)


class _Given:
    """What a process of the pool was begun with."""

    opened: OpenedSearch
    counter: Any
    stop: Any


class _Ended(Exception):
    """The search was ended from outside."""


def _begin(config: FineTuningConfig, counter: Any, stop: Any, parent: int) -> None:
    # Ctrl-C reaches all processes of a terminal; the first one tells the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ[VARIABLE] = str(parent)
    hold_lifeline()
    torch.set_num_threads(1)
    _Given.opened, _Given.counter, _Given.stop = open_search(config), counter, stop


def _train(cell: TuningCell) -> None:
    def updated() -> None:
        with _Given.counter.get_lock():
            _Given.counter.value += 1
        if _Given.stop.is_set():
            raise _Ended

    _Given.opened.train(cell, updated)
