"""`normscope train` begins or resumes one run."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from ..processes.surroundings import rank_of_environment, under_torchrun
from .console import TrainDisplay, say, stderr
from .early import refuse_unreadable
from .processes import spoken_once, start_processes
from .shared import Imports, Settings, StopWhen, resumable


@resumable()
def train(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.toml", help="Configuration; every setting has its default without one."),
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Run folder.  [default: runs/NAME-OF-CONFIG]")] = None,
    settings: Settings = [],  # noqa: B006
    imports: Imports = [],  # noqa: B006
    on_nonfinite: Annotated[
        str | None, typer.Option(help="What to do when a loss or gradient is not finite: stop or skip.")
    ] = None,
    from_step: Annotated[
        int | None, typer.Option(help="Resume from the checkpoint of this update and delete the later ones.")
    ] = None,
    devices: Annotated[
        int, typer.Option(help="Processes that train together on this machine, each on a device of its own.", min=1)
    ] = 1,
    restarts: Annotated[
        int, typer.Option(help="How often they are started again after one of them has failed.", min=0)
    ] = 0,
    stop_when: StopWhen = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would take in memory and arithmetic, and train nothing.")
    ] = False,
) -> None:
    """Train one model, or resume a run that was stopped.

    For example:

    \b
      normscope train my.toml --run runs/first

    With --devices 4 four processes share out the batches of every update; torchrun -m normscope train does the same on
    any number of machines.
    """
    if dry_run:
        _say_plan(config, settings, imports, devices)
        return
    if devices > 1 and not under_torchrun():
        refuse_unreadable(config, settings, imports)
        start_processes(devices, sys.argv[1:], restarts=restarts)
        return
    with spoken_once():
        _train(config, run, settings, imports, on_nonfinite, from_step, stop_when)


def _say_plan(config: Path | None, settings: list[str], imports: list[str], devices: int) -> None:
    refuse_unreadable(config, settings, imports)
    from ..runs.config import load
    from ..runs.plan import plan
    from ..tasks.registry import task_from_scratch
    from .plans import plan_lines

    loaded = load(config, settings, imports)
    task = task_from_scratch(loaded, "a fine-tuning begins with a trained model, whose run says what it takes")
    for line in plan_lines(plan(task, loaded), loaded, devices):
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
    refuse_unreadable(config, overrides, imports)
    from ..adapters.tensorboard import TensorBoardLog
    from ..runs.config import load
    from ..runs.run import Listener, train_run
    from ..train import NonFinite, PeerLost, StopRule

    folder = run or Path("runs") / (config.stem if config else "default")
    loaded = load(config, overrides, imports)
    first = rank_of_environment() == 0
    speak = say if first else _silent
    try:
        with ExitStack() as shown:
            listeners: list[Listener] = []
            if first:
                listeners.append(shown.enter_context(TrainDisplay(stderr, folder.name)))
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
