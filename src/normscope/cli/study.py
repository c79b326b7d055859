"""`normscope study …`: measurements with a figure and data of their own, one verb each."""

import importlib
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError
from .console import StageDisplay, say, stderr
from .shared import Imports, run_imports

if TYPE_CHECKING:
    from ..studies.protocol.study import Findings, Study

STUDIES = {
    "lemmas": "Lemmas 1 to 3 by simulation: ReLU, the size of the hidden state, and the Jacobian of LayerNorm.",
    "theorem-1": "The last W2's gradient over depth and width: the paper's bound, the corrected order, measured.",
    "figure-3": "The paper's Figure 3: gradient norms by layer and by depth, on real text.",
    "hidden-state": "The size of the hidden state over depth for every placement: predicted and measured.",
    "concentration": "How tightly squared norms of hidden states lie around their mean: (0.1, 0.125)-boundedness.",
    "real-text": "Hidden states and W2 gradients of every layer on real text: predicted and measured.",
    "advice": "The doctor's advice on rates: fitted to short trainings, judged by others.",
    "figure-5": "The paper's Figure 5: BERT pre-trained with Post-LN and Pre-LN, and fine-tuned.",
    "extended-theory": "Gradients of the lower layers: the paper's appendix F, the prediction, the measurement.",
}
"""Verb and what it asks; the module of that name in `studies` answers."""

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

    from ..studies.depth.study import DepthConfig, encoder_placements, run_depth

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
    with _resumable(), StageDisplay(stderr) as display:
        results = run_depth(config, out, command=command, watch=display, say=say)
    shown = [i for i, at in enumerate(results["depths"]) if at in (1, 10, 100, 1000, blocks)]
    typer.echo(f"{'placement':18} {'RMS':15} " + " ".join(f"{results['depths'][i]:>8}" for i in shown))
    for curve in sorted(results["placements"], key=lambda curve: -(curve["mean_rms"][-1] or float("inf"))):
        values = [curve["mean_rms"][i] for i in shown]
        numbers = " ".join(f"{'none' if value is None else format(value, '.4g'):>8}" for value in values)
        typer.echo(f"{curve['name']:18} {curve['behaviour']:15} {numbers}")
    typer.echo(f"figure: {out / 'hidden_rms.svg'}")


def _verb(name: str) -> Callable[..., None]:
    def verb(
        scale: Annotated[str, typer.Option(help="How large: smoke, cpu or paper.")] = "cpu",
        settings: Annotated[
            list[str],
            typer.Option("--set", metavar="KEY=VALUE", help="Change one setting of the scale, such as seeds=3."),
        ] = [],  # noqa: B006
        out: Annotated[Path | None, typer.Option(help="Folder of the study.  [default: runs/NAME]")] = None,
        imports: Imports = [],  # noqa: B006
    ) -> None:
        import torch

        from ..studies.protocol.study import Pieces, configured, run_study

        run_imports(imports)
        study: Study = importlib.import_module(f"normscope.studies.{name.replace('-', '_')}.study").STUDY
        if scale not in study.scales:
            raise UserError(f"--scale must be one of {', '.join(study.scales)}, got {scale!r}")
        config = configured(study.scales[scale], settings)
        torch.set_num_threads(1)  # the same bits on every number of cores
        command = shlex.join(["normscope", *sys.argv[1:]])
        with _resumable(), StageDisplay(stderr) as display:
            pieces = Pieces(out or Path("runs") / name, watch=display, say=say)
            found, page = run_study(study, config, pieces, command=command)
        _tell(study, found)
        typer.echo(f"page: {page}")

    return verb


for _name, _help in STUDIES.items():
    study_app.command(_name, help=f"{_help}\n\nWhat the folder holds already is not measured again.")(_verb(_name))


def _tell(study: "Study", found: "Findings") -> None:
    typer.echo(study.title)
    for key, value in found.conditions:
        typer.echo(f"  {key}: {value}")
    for claim in found.claims:
        typer.echo(f"{claim.name}: {claim.verdict}{f' ({claim.conditions})' if claim.conditions else ''}")
        typer.echo(f"  stated: {claim.statement} [{claim.source}]")
        typer.echo(f"  found:  {claim.found}")


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say("stopped; the same command goes on from there")
        raise typer.Exit(130) from None
