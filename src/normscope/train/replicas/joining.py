"""Joining the group of processes that torchrun has started; a process that it has not started trains alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from ...errors import UserError
from ...processes.torchrun import rank_of_environment, size_of_environment, under_torchrun
from .group import ALONE, Group, Replicas
from .heartbeat import beating

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
