"""`normscope study …`: measurements with a figure and data of their own, one verb each."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from .cli_shared import Imports, run_imports
from .console import StageDisplay, stderr

study_app = typer.Typer(
    help="Studies: one measurement each, with a figure and its data.", no_args_is_help=True, rich_markup_mode=None
)


@study_app.callback()
def _study() -> None:
    """Studies: one measurement each, with a figure and its data."""


@study_app.command("depth")
def depth(
    blocks: Annotated[int, typer.Option(help="Depth of the encoder.")] = 1000,
    width: Annotated[int, typer.Option(help="Of the model; the feed-forward is four times as wide.")] = 64,
    seeds: Annotated[int, typer.Option(help="Draws of the weights.")] = 3,
    placements: Annotated[str, typer.Option(help="Comma-separated; without it all that have encoders.")] = "",
    initialisation: Annotated[
        str, typer.Option(help="as-placement, or one scheme for all, such as xavier-normal.")
    ] = "as-placement",
    out: Annotated[Path, typer.Option(help="Folder for the figure and its data.")] = Path("runs/depth"),
    imports: Imports = [],  # noqa: B006
) -> None:
    """The size of the hidden state after every block at initialisation: what grows, what stays, what falls.

    Placements that the folder holds already are not measured again.
    """
    import torch

    from .studies.depth import DepthConfig, encoder_placements, run_depth

    run_imports(imports)
    # Matrices this small take longer on several threads, which wait for each other.
    torch.set_num_threads(1)
    names = tuple(name.strip() for name in placements.split(",") if name.strip()) or encoder_placements()
    config = DepthConfig(
        placements=names,
        blocks=blocks,
        width=width,
        ffn_width=4 * width,
        seeds=seeds,
        initialisation=initialisation,
    )
    command = shlex.join(["normscope", *sys.argv[1:]])
    try:
        with StageDisplay(stderr) as display:
            results = run_depth(config, out, command=command, watch=display, say=_say)
    except KeyboardInterrupt:
        _say("stopped; the same command goes on from there")
        raise typer.Exit(130) from None
    shown = [i for i, at in enumerate(results["depths"]) if at in (1, 10, 100, 1000, blocks)]
    typer.echo(f"{'placement':18} {'RMS':15} " + " ".join(f"{results['depths'][i]:>8}" for i in shown))
    for curve in sorted(results["placements"], key=lambda curve: -(curve["mean_rms"][-1] or float("inf"))):
        values = [curve["mean_rms"][i] for i in shown]
        numbers = " ".join(f"{'none' if value is None else format(value, '.4g'):>8}" for value in values)
        typer.echo(f"{curve['name']:18} {curve['behaviour']:15} {numbers}")
    typer.echo(f"figure: {out / 'hidden_rms.svg'}")


def _say(text: str) -> None:
    stderr.print(text, soft_wrap=True)
