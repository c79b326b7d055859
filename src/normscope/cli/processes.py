"""One training in several processes on this machine, by torchrun; and what each of them says."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer

from ..errors import UserError
from ..processes.surroundings import rank_of_environment
from ..signals import Interrupted, Stopped
from .console import say


@contextmanager
def spoken_once() -> Iterator[None]:
    """What all processes of a training meet, the first of them says; the others end with the same exit code."""
    try:
        yield
    except (UserError, Interrupted, Stopped) as error:
        if rank_of_environment() == 0:
            raise
        raise typer.Exit(getattr(error, "exit_code", 2)) from None


def start_processes(count: int, words: Sequence[str], *, restarts: int) -> None:
    """Run `normscope WORDS` in `count` processes by torchrun's own launcher.

    restarts: how often all of them are started again after one has failed. Raises typer.Exit with the exit code of the
    first that failed, or that of the signal that ended them.
    """
    import logging

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Its own log tells of every end in twenty lines; the processes say themselves what has happened.
    logging.disable(logging.CRITICAL)
    if sys.platform == "linux":
        # All of them are on this machine, whose name need not lead anywhere.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        run_id="normscope",
        max_restarts=restarts,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "normscope", *words)
    except ChildFailedError as failed:
        code = failed.get_first_failure()[1].exitcode
        if code < 0:
            say(f"a process of the training was ended by signal {-code}; the same command resumes it")
        raise typer.Exit(code if code > 0 else 128 - code) from None
    except SignalException as signalled:
        raise typer.Exit(128 + signalled.sigval) from None
