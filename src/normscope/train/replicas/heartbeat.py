"""Noticing that another process of the training has stopped answering.

A process that ends closes its connections, and the others notice at once. One that hangs or was stopped leaves them
waiting; so each says once a second that it lives, in the store that the group met in, and watches the others.
"""

import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from .group import Replicas

VARIABLE = "NORMSCOPE_HEARTBEAT_SECONDS"
"""Set by a user who wants another time than `_SECONDS`."""
_SECONDS = 30.0
EXIT_CODE = 75
"""Of a process that leaves because another one does not answer: a temporary failure (sysexits.h)."""


@contextmanager
def beating(group: Replicas) -> Iterator[None]:
    """Within it this process says that it lives, and ends, with one line, where another one does not for too long."""
    patience = float(os.environ.get(VARIABLE, _SECONDS))
    ended = threading.Event()
    beats = _Beats()
    beats.set(f"name/{group.rank}", f"{socket.gethostname()}, process {os.getpid()}")
    thread = threading.Thread(target=_watch, args=(beats, group, patience, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _Beats:
    """What the processes say of themselves: short texts by name, anew for every start of the group."""

    def __init__(self) -> None:
        # A connection of its own: waiting for one answer would hold back all that goes over the group's.
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._store = dist.TCPStore(address, port, is_master=False)  # type: ignore[attr-defined]
        self._start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    def set(self, name: str, text: str) -> None:
        self._store.set(self._key(name), text)

    def get(self, name: str) -> str | None:
        """None where nothing was said yet."""
        key = self._key(name)
        return self._store.get(key).decode() if self._store.check([key]) else None

    def _key(self, name: str) -> str:
        return f"normscope/{self._start}/{name}"


def _watch(beats: _Beats, group: Replicas, patience: float, ended: threading.Event) -> None:
    seen: dict[int, tuple[str | None, float]] = {
        rank: (None, time.monotonic()) for rank in range(group.size) if rank != group.rank
    }
    for number in itertools.count():
        if ended.wait(min(1.0, patience / 4)):
            return
        try:
            beats.set(f"beat/{group.rank}", str(number))
            for rank, (beat, since) in seen.items():
                now = beats.get(f"beat/{rank}")
                if now != beat:
                    seen[rank] = now, time.monotonic()
                elif time.monotonic() - since > patience:
                    _leave(beats.get(f"name/{rank}"), group, rank, patience)
        except (RuntimeError, ValueError):
            return  # the store has gone with whoever held it; then connections close as well


def _leave(name: str | None, group: Replicas, rank: int, patience: float) -> None:
    print(
        f"process {group.rank} of {group.size}: process {rank} ({name or 'which never joined'}) has not answered for "
        f"{patience:g} seconds; this one ends, so that torchrun can start all of them again",
        file=sys.stderr,
        flush=True,
    )
    # The main thread waits within a collective, which nothing but the other process could end.
    os._exit(EXIT_CODE)
