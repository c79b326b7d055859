"""Work on several processes: in order, with bounded memory, and without orphans."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from ..errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(function: Callable[[Item], Result], items: Iterable[Item], *, processes: int) -> Iterator[Result]:
    """What the function makes of each item, in their order; the same for any number of processes.

    One works in this process; more are spawned, so that function and items must be picklable, and the main module
    importable. At most 2 * processes + 1 items are taken ahead of what is given out.
    Raises UserError where a process ends before its work is done.
    """
    if processes == 1:
        yield from map(function, items)
        return
    # Spawned, not forked: a fork copies the locks of threads that do not exist in the child.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_follow_the_parent)
    waiting: deque[Future[Any]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "a process ended before its work was done (no memory left, or a script without "
            '`if __name__ == "__main__":`); try one process'
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _follow_the_parent() -> None:
    """Leave Ctrl-C to the parent, which ends its workers in order; and end when the parent was killed.

    Threads of the tokenizers library would be as many as processors in each process.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
