"""Processes that train one run together, as torchrun starts them: forked, so that each finds torch imported."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forked import Forked, _normscope, call


def started(size: int, *words: str, program: Callable[..., None] | None = None, **extra: str) -> list[Forked]:
    """`normscope WORDS` in `size` processes of one group; program: a function of a module of `tests` instead.

    extra: variables of their environment.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": str(size), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
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
