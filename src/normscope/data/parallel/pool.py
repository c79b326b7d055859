"""Tokenising on several processes: in order, with bounded memory, and without orphans."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from ...errors import UserError
from ..text import TextForm, prepare_pairs

CHUNK_PAIRS = 1000

RawPair = tuple[str, str]
PreparedPair = tuple[str, str]
Chunk = list[tuple[RawPair, PreparedPair]]


def prepared_pairs(pairs: Iterable[RawPair], source: TextForm, target: TextForm, *, workers: int) -> Iterator[Chunk]:
    """Yield the pairs in their order, in chunks, each beside its tokenised form; the same for any number of workers.

    One worker works in this process. Raises UserError where a process ends before its work is done.
    """
    stream = iter(pairs)
    chunks = iter(lambda: list(islice(stream, CHUNK_PAIRS)), [])
    if workers == 1:
        for chunk in chunks:
            yield list(zip(chunk, prepare_pairs(source, target, chunk), strict=True))
        return
    # Spawned, not forked: a fork copies the locks of threads that do not exist in the child.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_follow_the_parent)
    waiting: deque[tuple[list[RawPair], Future[list[PreparedPair]]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(prepare_pairs, source, target, chunk)))
            if len(waiting) > 2 * workers:
                yield _first(waiting)
        while waiting:
            yield _first(waiting)
    except BrokenProcessPool as error:
        raise UserError(
            "a tokenising process ended before its work was done (no memory left, or a script without "
            '`if __name__ == "__main__":`); try workers=1'
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _first(waiting: deque[tuple[list[RawPair], Future[list[PreparedPair]]]]) -> Chunk:
    chunk, future = waiting.popleft()
    return list(zip(chunk, future.result(), strict=True))


def _follow_the_parent() -> None:
    """Leave Ctrl-C to the parent, which ends its workers in order; and end when the parent was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
