"""`normscope train`: one run, begun or resumed."""

from pathlib import Path
from typing import Annotated

import typer

from .console import TrainDisplay, say, stderr
from .shared import Imports, Settings


def train(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG.toml", help="Without one: the defaults.")] = None,
    run: Annotated[Path | None, typer.Option(help="Run folder; runs/NAME-OF-CONFIG without it.")] = None,
    settings: Settings = [],  # noqa: B006
    imports: Imports = [],  # noqa: B006
    on_nonfinite: Annotated[str | None, typer.Option(help="stop or skip; as --set train.on_nonfinite=….")] = None,
    from_step: Annotated[int | None, typer.Option(help="Go on from this checkpoint and drop the later ones.")] = None,
) -> None:
    """Train one model, or go on with a run that was stopped: the same command does both."""
    from ..adapters.tensorboard import TensorBoardLog
    from ..runs.config import load
    from ..runs.run import train_run
    from ..train import Interrupted, NonFinite

    overrides = [*settings, *([f'train.on_nonfinite="{on_nonfinite}"'] if on_nonfinite else [])]
    folder = run or Path("runs") / (config.stem if config else "default")
    loaded = load(config, overrides, imports)
    try:
        with TrainDisplay(stderr, folder.name) as display, TensorBoardLog(folder / "tensorboard") as board:
            train_run(loaded, folder, listeners=[display, board], from_step=from_step, say=say)
    except Interrupted as stop:
        say(f"{stop}; the same command goes on from there")
        raise typer.Exit(stop.exit_code) from None
    except NonFinite as problem:
        say(f"stopped at {problem}. The last checkpoint is kept; a lower rate, a warm-up or clip_norm may help")
        raise typer.Exit(1) from None
    typer.echo(str(folder))
