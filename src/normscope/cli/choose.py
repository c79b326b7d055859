"""`normscope choose` says what is known for a model one wants to train."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError
from .console import standard_output
from .names import PlacementWords, placement_names
from .shared import Imports, run_imports, write_text


def choose(
    placements: PlacementWords = None,
    model: Annotated[
        str, typer.Option(help="Kind of model: encoder-only, decoder-only or encoder-decoder.")
    ] = "decoder-only",
    blocks: Annotated[int, typer.Option(help="Number of blocks of a stack.")] = 12,
    width: Annotated[int, typer.Option(help="Width of the model.")] = 768,
    optimizer: Annotated[str, typer.Option(help="Optimiser: adam, adamw, muon, lion, sgd or radam.")] = "adamw",
    tokens: Annotated[
        float | None, typer.Option(help="Tokens of the whole training, such as 5e9.  [default: not compared]")
    ] = None,
    imports: Imports = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON.")] = False,
    write_docs: Annotated[
        Path | None,
        typer.Option(
            help="In a clone: read results/ beside this folder anew, and write the manual's page and the package's "
            "evidence."
        ),
    ] = None,
) -> None:
    """Say which placements, rates and warm-ups are supported by which evidence, and what is not known.

    For example:

    \b
      normscope choose --blocks 24 --width 1024 --optimizer muon --tokens 5e9
    """
    run_imports(imports)
    if write_docs is not None:
        _write_docs(write_docs)
        return
    from ..choosing.case import Case
    from ..choosing.choice import choose as chosen

    names = placement_names(placements or ())
    try:
        case = Case(model=model, blocks=blocks, width=width, optimizer=optimizer, tokens=tokens)  # type: ignore[arg-type]
        found = chosen(case, () if names == ["all"] else names)
    except ValueError as error:
        raise UserError(str(error)) from error
    if as_json:
        from ..choosing.plain import plain

        typer.echo(json.dumps(plain(found), ensure_ascii=False, indent=1))
        return
    from ..choosing.view import choice_view

    standard_output().print(choice_view(found))


def _write_docs(folder: Path) -> None:
    """The page and the evidence that it is written from, which is the package's from then on."""
    from ..choosing.page import page
    from ..choosing.reading import collect
    from ..choosing.stored import FILE, packed

    evidence = collect(folder.resolve().parent / "results")
    write_text("--write-docs", FILE, packed(evidence))
    write_text("--write-docs", folder / "choosing.md", page(evidence))
    typer.echo(f"{FILE}\n{folder / 'choosing.md'}")
