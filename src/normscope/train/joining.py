"""Joining the processes that torchrun has started, and noticing that one of them has stopped answering.

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
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from ..errors import UserError
from ..processes.surroundings import rank_of_environment, size_of_environment, under_torchrun
from .group import ALONE, Group, Replicas

VARIABLE = "NORMSCOPE_HEARTBEAT_SECONDS"
"""Set by a user who wants another time than `_SECONDS`."""
_SECONDS = 30.0
_LAST_BEAT_SECONDS = 10.0
"""Until the store has answered or failed, once the training is over."""
EXIT_CODE = 75
"""Of a process that leaves because another one does not answer: a temporary failure (sysexits.h)."""


@contextmanager
def beating(group: Replicas) -> Iterator[None]:
    """Within it this process says that it lives, and ends, with one line, where another one does not for too long."""
    heart = _Heart(group, float(os.environ.get(VARIABLE, _SECONDS)))
    threads = [threading.Thread(target=work, daemon=True) for work in (heart.beat, heart.guard)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        heart.ended.set()
        for thread in threads:
            # Python ends a thread that is still within the store's code by an abort of the whole process.
            thread.join(_LAST_BEAT_SECONDS)


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


class _Heart:
    """What this process says of itself, and hears of the others."""

    def __init__(self, group: Replicas, patience_seconds: float) -> None:
        self.group, self.patience_seconds, self.ended = group, patience_seconds, threading.Event()
        self.beats = _Beats()
        self.beats.set(f"name/{group.rank}", f"{socket.gethostname()}, process {os.getpid()}")
        self.answered_at = time.monotonic()
        """When the store last did."""

    def beat(self) -> None:
        """Say once a second that this process lives, and look at the others."""
        seen: dict[int, tuple[str | None, float]] = {
            rank: (None, time.monotonic()) for rank in range(self.group.size) if rank != self.group.rank
        }
        for number in itertools.count():
            if self._waited():
                return
            try:
                self.beats.set(f"beat/{self.group.rank}", str(number))
                for rank, (beat, since) in seen.items():
                    now = self.beats.get(f"beat/{rank}")
                    if now != beat:
                        seen[rank] = now, time.monotonic()
                    elif time.monotonic() - since > self.patience_seconds:
                        name = self.beats.get(f"name/{rank}") or "which never joined"
                        self._leave(f"process {rank} ({name})")
            except (RuntimeError, ValueError):
                return  # the store has gone with whoever held it; then connections close as well
            self.answered_at = time.monotonic()

    def guard(self) -> None:
        """See that `beat` is not kept waiting by whoever holds the store."""
        while not self._waited():
            if time.monotonic() - self.answered_at > 2 * self.patience_seconds:
                self._leave(f"who holds the store at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")

    def _waited(self) -> bool:
        """Whether the training ended while this waited for the next look."""
        return self.ended.wait(min(1.0, self.patience_seconds / 4))

    def _leave(self, who: str) -> None:
        if self.ended.is_set():
            return
        print(
            f"process {self.group.rank} of {self.group.size}: {who} has not answered for {self.patience_seconds:g} "
            "seconds; this one ends, so that torchrun can start all of them again",
            file=sys.stderr,
            flush=True,
        )
        # The main thread waits within a collective, which nothing but the other process could end.
        os._exit(EXIT_CODE)


_PATIENCE = timedelta(hours=1)
"""How long one waits for others that are alive: while the first of them saves, or measures."""


@contextmanager
def joined(device: torch.device) -> Iterator[Group]:
    """The group that torchrun started this process in, which ends with the context; `ALONE` otherwise.

    device: of this process; gradients on CUDA travel by NCCL, all else by gloo. Raises UserError where the group does
    not come together.
    """
    if size_of_environment() == 1:
        yield ALONE
        return
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
            dist.init_process_group("cpu:gloo,cuda:nccl", timeout=_PATIENCE, device_id=device)
        else:
            dist.init_process_group("gloo", timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"process {rank_of_environment()} of {size_of_environment()} could not join the others at "
            f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: {str(error).splitlines()[0]}"
        ) from error
    try:
        group = Replicas()
        with beating(group):
            yield group
        # Who holds the store goes last: torch complains of an answer that another process still waits for.
        with suppress(RuntimeError):
            dist.barrier()
    finally:
        dist.destroy_process_group()


def own_device(device: torch.device) -> torch.device:
    """The device of this process: each process of a machine has a CUDA device of its own. Raises UserError."""
    if device.type != "cuda" or not under_torchrun():
        return device
    local = int(os.environ["LOCAL_RANK"])
    if local >= torch.cuda.device_count():
        raise UserError(
            f"this machine has {torch.cuda.device_count()} CUDA devices, too few for process {local} of those on it: "
            "start as many processes as there are devices, or set train.device to cpu"
        )
    return torch.device("cuda", local)
