"""`normscope study …`: measurements with a page and data of their own, one verb each."""

import inspect
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..studies.protocol.about import About
from ..studies.protocol.discovery import studies
from .console import StageDisplay, say, stderr
from .help import WholeLines
from .shared import EngineName, Imports, resumable, run_imports

if TYPE_CHECKING:
    from ..studies.protocol.study import Findings

_Scale = Annotated[str, typer.Option(help="How large: smoke, cpu or paper.")]
_Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change one setting of the scale, such as seeds=3.")
]
_Out = Annotated[Path | None, typer.Option(help="Folder of the study.  [default: runs/NAME]")]

study_app = typer.Typer(
    cls=WholeLines,
    help="Studies: one measurement each, with a page and its data.\n\n"
    "For example:\n\n\b\n  normscope study lemmas --scale smoke",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@study_app.callback()
def _study() -> None:
    """Studies: one measurement each, with a page and its data."""


def _verb(name: str, about: About) -> Callable[..., None]:
    @resumable()
    def verb(
        *, scale: str, settings: list[str], out: Path | None, engine: str | None, imports: list[str], **options: Any
    ) -> None:
        run_imports(imports)
        _run(name, scale, settings, _given(about, options), out or Path("runs") / name, engine)

    parameters: dict[str, tuple[Any, Any]] = {
        "scale": (_Scale, "cpu"),
        **{
            option.name: (Annotated[option.kind | None, typer.Option(help=option.help, show_default=False)], None)
            for option in about.options
        },
        "settings": (_Settings, []),
        "out": (_Out, None),
        "engine": (EngineName, None),
        "imports": (Imports, []),
    }
    # Typer reads a verb's options from its signature.
    verb.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in parameters.items()
        ]
    )
    verb.__annotations__ = {name: annotation for name, (annotation, _) in parameters.items()}
    return verb


for _name, _about in studies().items():
    study_app.command(
        _name,
        help=f"{_about.help}\n\nWhat the folder holds already is not measured again.\n\n"
        f"For example:\n\n\b\n  normscope study {_name} --scale smoke",
    )(_verb(_name, _about))


def _given(about: About, values: dict[str, Any]) -> dict[str, Any]:
    """Settings that came by options of their own."""
    given: dict[str, Any] = {}
    for option in about.options:
        if values[option.name] is not None:
            given |= option.sets(values[option.name])
    return given


def _run(name: str, scale: str, settings: list[str], given: dict[str, Any], out: Path, engine: str | None) -> None:
    import torch

    from ..engines.choosing import chosen
    from ..studies.protocol.discovery import study as study_of
    from ..studies.protocol.pieces import Pieces
    from ..studies.protocol.settings import configured
    from ..studies.protocol.study import run_study

    study = study_of(name)
    if scale not in study.scales:
        raise UserError(f"--scale must be one of {', '.join(study.scales)}, got {scale!r}")
    config = configured(study.scales[scale].config, settings, given)
    where = chosen(engine)
    torch.set_num_threads(1)  # the same bits on every number of cores
    command = shlex.join(["normscope", *sys.argv[1:]])
    with StageDisplay(stderr) as display:
        pieces = Pieces(out, watch=display, say=say, engine=where)
        found, page = run_study(study, config, pieces, command=command, scale=scale)
    _print(study.about.title, found, study.caution(scale))
    typer.echo(f"page: {page}")


def _print(title: str, found: "Findings", caution: str) -> None:
    from ..report.numbers import counted
    from ..report.study.verdict import tally

    typer.echo(title)
    for key, value in found.conditions:
        typer.echo(f"  {key}: {value}")
    for line in found.lines:
        typer.echo(line)
    for claim in found.claims:
        typer.echo(f"{claim.name}: {claim.verdict}{f' ({claim.conditions})' if claim.conditions else ''}")
        typer.echo(f"  claim:    {claim.statement} [{claim.source}]")
        typer.echo(f"  measured: {claim.found}")
    if found.claims:
        typer.echo(f"{counted(len(found.claims), 'claim')}: {tally(claim.verdict for claim in found.claims)}.")
        if caution:
            typer.echo(caution)
