"""`normscope train` begins or resumes one run, in one process or several, or says what it would take."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError
from ..processes.surroundings import interpreter, rank_of_environment, under_torchrun, with_lifeline
from ..signals import Interrupted, Stopped
from .console import TrainDisplay, say, stderr
from .options import described_by
from .shared import COMPARE, ConfigFile, Imports, SettingOptions, StopWhen, Trust, read_config, resumable

if TYPE_CHECKING:
    from ..runs.machine import Plan
    from ..tasks.run_config import RunConfig


_CELL = 13
"""Columns of a number of megabytes; four of them fit beside the names."""


def plan_lines(plan: "Plan", config: "RunConfig", devices: int) -> Iterator[str]:
    """A table of memory by part in each process: with the whole model, and sharded over several processes."""
    batches = config.train.accumulation
    yield f"parameters: {plan.parameters:,}"
    yield (
        f"an update: {plan.flops_per_update:.3g} floating-point operations in {batches} "
        f"batch{'es' if batches > 1 else ''}"
    )
    over = [devices] if devices > 1 else [2, 4, 8]
    parts = {"whole": plan} | {f"over {count}": plan.sharded(count) for count in over}
    rows = {
        "weights": [one.weights for one in parts.values()],
        "gradients": [one.gradients for one in parts.values()],
        f"optimiser ({config.optimizer.name})": [one.optimizer for one in parts.values()],
        "activations of one batch": [one.activations for one in parts.values()],
        "blocks put together": [0, *(plan.put_together for _ in over)],
    }
    rows["sum"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    width = max(map(len, rows))
    yield "memory of each process in MB, with the whole model and sharded over several:"
    yield f"{'':{width}}" + "".join(f"{name:>{_CELL}}" for name in parts)
    for name, row in rows.items():
        yield f"{name:{width}}" + "".join(f"{number / 1e6:{_CELL},.1f}" for number in row)


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
    os.environ.update(with_lifeline({}))
    # What torch warns of where another process has gone, with forty lines of its own code, the processes say in one.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    python, *options = interpreter()
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
        elastic_launch(config, python)(*options, "-m", "normscope", *words)
    except ChildFailedError as failed:
        code = failed.get_first_failure()[1].exitcode
        if code < 0:
            say(f"a process of the training was ended by signal {-code}; the same command resumes it")
        raise typer.Exit(code if code > 0 else 128 - code) from None
    except SignalException as signalled:
        raise typer.Exit(128 + signalled.sigval) from None


@described_by("api/runs.py:train", COMPARE)
@resumable()
def train(
    config: ConfigFile = None,
    *,
    run: Path | None = None,
    settings: SettingOptions = [],  # noqa: B006
    imports: Imports = [],  # noqa: B006
    on_nonfinite: str | None = None,
    from_step: int | None,
    devices: Annotated[int, typer.Option(min=1)] = 1,
    restarts: Annotated[int, typer.Option(min=0)] = 0,
    stop_when: StopWhen,
    dry_run: bool = False,
    trust: Trust = False,
) -> None:
    """Train one model, or resume a run that was stopped.

    For example:

    \b
      normscope train my.toml --run runs/first

    With --devices 4 four processes share out the batches of every update; torchrun -m normscope train does the same on
    any number of machines.

    run: Run folder. By default runs/NAME-OF-CONFIG. on_nonfinite: What to do when a loss or gradient is not finite:
    stop or skip. devices: Processes that train together on this machine, each on a device of its own. restarts: How
    often they are started again after one of them has failed. dry_run: Say what it would take in memory and arithmetic,
    and train nothing.
    """
    if dry_run:
        _say_plan(config, settings, imports, devices, trust)
        return
    if devices > 1 and not under_torchrun():
        read_config(config, settings, imports)
        start_processes(devices, sys.argv[1:], restarts=restarts)
        return
    with spoken_once():
        _train(config, run, settings, imports, on_nonfinite, from_step, stop_when)


def _say_plan(config: Path | None, settings: list[str], imports: list[str], devices: int, trust: bool) -> None:
    given = read_config(config, settings, imports, trust=trust)
    from ..runs.machine import plan
    from ..tasks.registry import config_of

    loaded = config_of(given.table, source=given.source)
    for line in plan_lines(plan(loaded), loaded, devices):
        typer.echo(line)


def _train(
    config: Path | None,
    run: Path | None,
    settings: list[str],
    imports: list[str],
    on_nonfinite: str | None,
    from_step: int | None,
    stop_when: str | None,
) -> None:
    overrides = [*settings, *([f'train.on_nonfinite="{on_nonfinite}"'] if on_nonfinite else [])]
    given = read_config(config, overrides, imports)
    from ..adapters.tensorboard import TensorBoardLog
    from ..runs.run import Listener, train_run
    from ..tasks.registry import config_of
    from ..train import NonFinite, PeerLost, StopRule

    folder = run or Path("runs") / (config.stem if config else "default")
    loaded = config_of(given.table, source=given.source)
    first = rank_of_environment() == 0
    speak = say if first else _silent
    try:
        with ExitStack() as shown:
            listeners: list[Listener] = []
            if first:
                listeners.append(shown.enter_context(TrainDisplay(stderr(), folder.name)))
                listeners.append(shown.enter_context(TensorBoardLog(folder / "tensorboard")))
            train_run(
                loaded, folder, listeners=listeners, from_step=from_step, stop_when=StopRule.of(stop_when), say=speak
            )
    except NonFinite as problem:
        speak(f"stopped at {problem}. Every checkpoint is kept; a lower learning rate, a warm-up or clip_norm may help")
        raise typer.Exit(1) from None
    except PeerLost as problem:
        speak(f"stopped: {problem}. The same command resumes the run from its newest checkpoint")
        raise typer.Exit(1) from None
    if first:
        typer.echo(str(folder))


def _silent(line: str) -> None:
    pass
