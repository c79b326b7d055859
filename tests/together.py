"""Processes that train one run together, as torchrun starts them: forked, so that each finds torch imported."""

import errno
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from forked import Forked, _normscope, call
from normscope.files import disk_errors
from normscope.train import checkpoint, loop
from normscope.train.gradients import UpdateGradients


def started(size: int, *words: str, program: Callable[..., None] | None = None, **extra: str) -> list[Forked]:
    """`normscope WORDS` in `size` processes of one group; program: a function of a module of `tests` instead.

    extra: variables of their environment.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": str(size), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    if sys.platform == "linux":
        group["GLOO_SOCKET_IFNAME"] = "lo"  # a test machine's name need not lead anywhere
    return [
        call(
            program or _normscope,
            words,
            {**os.environ, **group, "RANK": str(rank), "LOCAL_RANK": str(rank), **extra},
            Path.cwd(),
            b"",
        )
        for rank in range(size)
    ]


def ended(processes: list[Forked]) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each."""
    found: list[Any] = [(process.communicate(timeout=240), process) for process in processes]
    return [(process.returncode, out.decode(), err.decode()) for (out, err), process in found]


def failing(words: tuple[str, ...], environment: dict[str, str], folder: Path, stdin: bytes) -> None:
    """`normscope WORDS` in which something fails: FAILS is what, and in which update or micro-batch."""
    what, _, update = environment["FAILS"].partition(":")
    if environment["FAILS_RANK"] == environment["RANK"]:
        _FAILURES[what](int(update))
    _normscope(words, environment, folder, stdin)


def _exception(update: int) -> None:
    one_update = loop.Trainer._one_update

    def failing_update(self: loop.Trainer) -> None:
        if self.progress.update + 1 == update:
            raise RuntimeError("something of ours is broken")
        one_update(self)

    loop.Trainer._one_update = failing_update  # type: ignore[method-assign]


def _full_disk(update: int) -> None:
    save = checkpoint.save

    def failing_save(folder: Path, at: int, *rest: Any) -> Any:
        if at >= update:
            with disk_errors(f"saving step {at}"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return save(folder, at, *rest)

    checkpoint.save = failing_save


def _nan(number: int) -> None:
    """In the gradient of the micro-batch of that number, of one matrix."""
    backward = UpdateGradients._backward

    def spoilt(self: UpdateGradients, at: int, batch: Any, tokens: int) -> torch.Tensor:
        if at != number:
            return backward(self, at, batch, tokens)
        bad = self.parameters[3]
        handle = bad.register_hook(lambda gradient: gradient * torch.nan)  # type: ignore[no-untyped-call]
        try:
            return backward(self, at, batch, tokens)
        finally:
            handle.remove()

    UpdateGradients._backward = spoilt  # type: ignore[method-assign]


_FAILURES = {"exception": _exception, "full-disk": _full_disk, "nan": _nan}
