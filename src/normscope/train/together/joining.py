"""The start and the end of processes that torchrun has started together."""

import atexit
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ...errors import UserError, option
from ...processes.surroundings import launched_together, rank_of_environment
from ...signals import Interrupted, Stopped
from ..config import TrainConfig
from ..gradients import NonFinite
from .group import ALONE, Group, OwnError, Several, SharedError
from .life_signs import LifeSigns

if TYPE_CHECKING:
    # A torch that was built without it trains in one process.
    from torch._C._distributed_c10d import Store

_COMING_SECONDS = 600.0
"""The seconds that processes of other machines may take to come."""
_PARTING_SECONDS = 60.0
_CALL = timedelta(minutes=30)
"""The longest that a call to the others may take: as long as the first saves, or measures."""
_ORDERLY = (Interrupted, NonFinite, SharedError)
"""The errors that all processes raise together."""


def refuse_unshared(train: TrainConfig) -> None:
    """Raise UserError in one of several processes of a run that says nothing of several."""
    refuse_unshared_by(
        launched_together(),
        train,
        started="torchrun or a launcher like it has started",
        alone="`normscope compare` trains several runs side by side without a launcher",
    )


def refuse_unshared_by(count: int, train: TrainConfig, *, started: str, alone: str) -> None:
    """Raise UserError for a run that so many processes could not train together.

    started: what starts them, before their number. alone: what trains a run in one process.
    """
    if count == 1:
        return
    if train.parallel == "none":
        raise UserError(
            f"{started} {count} processes for one run, and "
            'train.parallel is "none": set it to "replicas" (each process holds the whole model) '
            f'or "shards" (each holds a part of it); {alone}'
        )
    if train.accumulation < count:
        raise UserError(
            f"train.parallel = {train.parallel}: an update has train.accumulation = "
            f"{train.accumulation} batches for {count} processes, each of which takes whole ones; "
            f"make it at least {count}, with smaller batches where an update is to have as many "
            "tokens as before"
        )
    if train.compile:
        raise UserError(
            f"train.parallel = {train.parallel}: train.compile is for one process; leave one of "
            "them out"
        )


def refuse_launched() -> None:
    """Refuses a command for one process in one of several that a launcher has started: they would
    all do the same, in one folder. Raises UserError.
    """
    count = launched_together()
    if count > 1:
        raise UserError(
            f"torchrun or a launcher like it has started {count} processes, and this command is "
            "for one, which starts its trainings by itself: give it without the launcher; "
            f"{option('processes')} says how many train at a time"
        )


@contextmanager
def joined(device_type: str, silent_seconds: float) -> Iterator[Group]:
    """The group that torchrun has started this process in, which ends with the context; `ALONE` for
    a process that trains alone.

    device_type: cpu or cuda; gradients on CUDA travel by NCCL, all else by gloo. silent_seconds: as
    in `TrainConfig`. Raises UserError where the group does not come together.
    """
    size, rank = launched_together(), rank_of_environment()
    if size == 1:
        yield ALONE
        return
    store, signs = _come(rank, size, device_type, silent_seconds)
    orderly = False
    try:
        yield Several(rank, size, signs)
        orderly = True
    except _ORDERLY:
        orderly = True
        raise
    except Stopped:
        if rank == 0:
            signs.tells()  # it says so itself, for those who meet its end alone
        raise
    except UserError as error:
        signs.tells()
        raise OwnError(f"process {rank} of {size}: {error}") from error
    finally:
        # Whoever goes first would close connections that others still speak over.
        if orderly:
            _met(store, "parting", size, _PARTING_SECONDS)
        signs.end(orderly=orderly)
        _HELD.append(dist.group.WORLD)
        dist.destroy_process_group()


def _come(
    rank: int, size: int, device_type: str, silent_seconds: float
) -> tuple["Store", LifeSigns]:
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size) and Path("/sys/class/net/lo").is_dir():
        # All of them are on this machine, whose name need not lead anywhere.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    from torch._C._distributed_c10d import PrefixStore

    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        # Two connections: one that waits for an answer keeps nobody else from asking.
        # A group that torchrun starts again after a failure finds nothing of the one before.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        own = f"normscope/{attempt}/{next(_GROUPS)}"
        calls, beats = _connected("calls"), _connected("beats")
        store, beats = PrefixStore(own, calls), PrefixStore(own, beats)
        signs = LifeSigns(beats, rank, size, silent_seconds=silent_seconds)
        signs.introduce()
        if not _met(store, "coming", size, _COMING_SECONDS):
            raise RuntimeError(f"not all of them came within {_COMING_SECONDS:.0f} seconds")
        signs.begin()
        backend, more = "gloo", dict[str, Any]()
        if device_type == "cuda":
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
            backend, more = "cpu:gloo,cuda:nccl", {"device_id": device}
        prefixed = PrefixStore("group", store)
        dist.init_process_group(
            backend, store=prefixed, rank=rank, world_size=size, timeout=_CALL, **more
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"process {rank} of {size} could not join the others at {address}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    return store, signs


_HELD: list[Any] = []
"""The last reference to each group, kept to the end of the process.

Gloo's group waits, when its last reference goes, for its threads, one of which may still have to
let go of a tensor, for which it needs Python's lock. DistributedDataParallel holds a reference too,
and lets go of it with the lock held: then both wait for ever. Python's own goes without the lock.
"""
atexit.register(_HELD.clear)

_KEPT: dict[str, "Store"] = {}
"""The stores of the process: where torchrun keeps no store, that of the first process lives as long
as the process.
"""
_GROUPS = itertools.count()
"""The numbers of the process's groups, one for each training."""


def _connected(name: str) -> "Store":
    if name not in _KEPT:
        from torch.distributed.rendezvous import rendezvous

        found, _, _ = next(iter(rendezvous("env://")))
        _KEPT[name] = found
    return _KEPT[name]


def _met(store: "Store", place: str, size: int, seconds: float) -> bool:
    """Wait until every process has come to this place; False where some have not, or the store has
    gone.
    """
    until = time.monotonic() + seconds
    try:
        count: int = store.add(place, 1)
        while count < size and time.monotonic() < until:
            time.sleep(0.02)
            count = store.add(place, 0)
    except RuntimeError:
        return False
    return count >= size
