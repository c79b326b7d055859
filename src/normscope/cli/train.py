"""`normscope train` begins or resumes one run."""

from pathlib import Path
from typing import Annotated

import typer

from .console import TrainDisplay, say, stderr
from .early import refuse_unreadable
from .shared import Imports, Settings, resumable


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
) -> None:
    """Train one model, or resume a run that was stopped.

    For example:

    \b
      normscope train my.toml --run runs/first
    """
    overrides = [*settings, *([f'train.on_nonfinite="{on_nonfinite}"'] if on_nonfinite else [])]
    refuse_unreadable(config, overrides, imports)
    from ..adapters.tensorboard import TensorBoardLog
    from ..runs.config import load
    from ..runs.run import train_run
    from ..train import NonFinite

    folder = run or Path("runs") / (config.stem if config else "default")
    loaded = load(config, overrides, imports)
    try:
        with TrainDisplay(stderr, folder.name) as display, TensorBoardLog(folder / "tensorboard") as board:
            train_run(loaded, folder, listeners=[display, board], from_step=from_step, say=say)
    except NonFinite as problem:
        say(f"stopped at {problem}. Every checkpoint is kept; a lower learning rate, a warm-up or clip_norm may help")
        raise typer.Exit(1) from None
    typer.echo(str(folder))
