"""A function in a forked process of its own: what hangs, or takes the process down, is one result and no end."""

import multiprocessing
import signal
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


def in_child(function: Callable[..., dict[str, Any]], limit_seconds: float, **options: Any) -> dict[str, Any] | str:
    """What the function returns, a dictionary of plain values; or in words why there is nothing."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(theirs, function, options), daemon=True)
    with warnings.catch_warnings():
        # Since Python 3.12 a fork beside threads warns; the child runs torch on one thread of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    theirs.close()
    try:
        if not ours.poll(limit_seconds):
            return "too long"
        found: dict[str, Any] = ours.recv()
        return found
    except EOFError:
        return "the process ended"
    finally:
        # A signal may be ignored by what the model runs.
        child.kill()
        child.join()
        ours.close()


def _send(pipe: Connection, function: Callable[..., dict[str, Any]], options: dict[str, Any]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pipe.send(function(**options))
