"""`normscope placements` lists and shows placements; `normscope choose` says what is known for a
model.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError, user_errors
from ..limits.kinds import WIRING
from . import shared
from .console import columns, standard_output
from .help.layout import GroupedCommand
from .help.options import described_by

if TYPE_CHECKING:
    from ..catalogue.details import Details
    from ..catalogue.rows import Size, StackName
    from ..choosing.case import ModelToTrain


@described_by()
def choose(
    placements: shared.PlacementWords = None,
    model: str = "decoder-only",
    blocks: int = 12,
    width: int = 768,
    optimizer: str = "adamw",
    tokens: Annotated[float | None, typer.Option(parser=shared.amount, metavar="NUMBER")] = None,
    batch_tokens: Annotated[
        float | None, typer.Option(parser=shared.amount, metavar="NUMBER")
    ] = None,
    imports: shared.Imports = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json")] = False,
    long: bool = False,
) -> None:
    """Say which placements, rates and warm-ups are supported by which evidence, and what is not
    known.

    `normscope choose qk-norm` asks about norms on queries and keys, which go with any placement.

    The model to train:
        placements
        model: Kind of model: encoder-only, decoder-only or encoder-decoder.
        blocks: Number of blocks of a stack.
        width: Width of the model.
        optimizer: Optimiser: adam, adamw, muon, lion, sgd or radam.
        tokens: Tokens of the whole training, such as 5B or 5e9. By default not compared.
        batch_tokens: Tokens of one update, over all devices and accumulation, such as 500k: the
            best rate hangs on them. By default three that are usual.
        imports

    What is shown:
        long: Print the evidence too: tables, theory, publications.
        as_json: Print everything as JSON.

    For example:

    \b
      normscope choose --blocks 24 --width 1024 --optimizer muon --tokens 5e9
    """
    shared.run_imports(imports)
    from ..choosing.case import ModelToTrain
    from ..choosing.choice import choose as chosen
    from ..choosing.query_key import is_asked_by

    about_norms = shared.as_asked(is_asked_by, placements or [])
    names = [] if about_norms else shared.placement_names(placements or ())
    with user_errors(ValueError):
        case = ModelToTrain(
            model=model,  # type: ignore[arg-type]
            blocks=blocks,
            width=width,
            optimizer=optimizer,
            tokens=tokens,
            batch_tokens=batch_tokens,
        )
        if about_norms:
            _tell_query_key_norms(case, as_json=as_json)
            return
        found = chosen(case, () if names == ["all"] else names)
    if as_json:
        from ..choosing.recommending import plain

        typer.echo(json.dumps(plain(found), ensure_ascii=False, indent=1))
        return
    from ..choosing.parts import choice_view

    standard_output().print(choice_view(found, tables=long))


def _tell_query_key_norms(case: "ModelToTrain", *, as_json: bool) -> None:
    """Prints what is known of norms on queries and keys."""
    from ..choosing.parts import sections_view
    from ..choosing.query_key import answer, answer_parts, title_of

    found = answer(case)
    if as_json:
        typer.echo(json.dumps(found.plain(), ensure_ascii=False, indent=1))
        return
    standard_output().print(sections_view(title_of(found), answer_parts(found)))


placements_app = typer.Typer(
    cls=shared.WholeLines,
    help="List placements with formula, source and cost; show some with their wiring and initial "
    "weights.\n"
    "\n"
    "Everything that is shown is read from the formula that trains.\n"
    "\n"
    "For example:\n"
    "\n"
    "\b\n"
    "  normscope placements --model encoder-only --blocks 12",
    rich_markup_mode=None,
)

_ModelOption = Annotated[
    str, typer.Option(help="Kind of model: encoder-only, decoder-only or encoder-decoder.")
]
_BlocksOption = Annotated[
    str,
    typer.Option(help="Number of blocks of a stack, such as 6, or 6+3 for encoder and decoder."),
]
_Width = Annotated[int, typer.Option(help="Width of the model.")]
_FfnWidth = Annotated[int, typer.Option(help="Inner width of the feed-forward.")]
_Heads = Annotated[int, typer.Option(help="Number of attention heads.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print the same as JSON.")]


@placements_app.callback(invoke_without_command=True)
@described_by()
def placements(
    context: typer.Context,
    model: _ModelOption = "encoder-decoder",
    blocks: _BlocksOption = "6",
    width: _Width = 512,
    ffn_width: _FfnWidth = 2048,
    heads: _Heads = 8,
    imports: shared.Imports = [],  # noqa: B006
    as_json: _AsJson = False,
    long: bool = False,
) -> None:
    """List all placements, a line each: name, year and formula.

    The model that numbers are stated for:
        model, blocks, width, ffn_width, heads, imports

    What is shown:
        long: Print the table: source, stacks, norms, parameters and cost of each too.
        as_json
    """
    if context.invoked_subcommand is not None:
        given = [name for name in context.params if _typed(context, name)]
        if given:
            option = "--" + {"imports": "import", "as_json": "json"}.get(
                given[0], given[0]
            ).replace("_", "-")
            raise UserError(f"{option} belongs after `{context.invoked_subcommand}`, not before it")
        return
    from ..catalogue.rows import rows

    size = _size(model, blocks, width, ffn_width, heads, imports)
    if as_json:
        found = {"size": asdict(size), "placements": [asdict(row) for row in rows(size)]}
        typer.echo(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        # The short list does without what the table takes: torch and matplotlib.
        if long:
            from ..catalogue.views import list_table

            standard_output().print(list_table(rows(size), size))
        else:
            from ..catalogue.words import short_lines

            print("\n".join(short_lines(size, columns())))


@placements_app.command(cls=GroupedCommand)
@described_by()
def show(
    names: Annotated[
        list[str], typer.Argument(metavar="PLACEMENT...", autocompletion=shared.complete_placements)
    ],
    stack: str = "",
    svg: Path | None = None,
    model: _ModelOption = "encoder-decoder",
    blocks: _BlocksOption = "6",
    width: _Width = 512,
    ffn_width: _FfnWidth = 2048,
    heads: _Heads = 8,
    imports: shared.Imports = [],  # noqa: B006
    as_json: _AsJson = False,
) -> None:
    """Show placements: the wiring diagram, initial weights, constants, parameters and source of
    each.

    What is shown:
        names: Names of placements, such as pre-ln.
        stack: Stack whose wiring is drawn: encoder or decoder. By default the first.
        as_json
        svg: Write the wiring diagram into this file too.

    The model that numbers are stated for:
        model, blocks, width, ffn_width, heads, imports

    For example:

    \b
      normscope placements show deepnorm
    """
    from ..catalogue.details import details
    from ..placement import named, registered

    if svg is not None:
        shared.refuse_other_picture("--svg", svg, WIRING)
    size = _size(model, blocks, width, ffn_width, heads, imports)
    asked = shared.placement_names(names)
    if asked == ["all"]:
        asked = [name for name, placement in registered().items() if size.model in placement.models]
    if svg is not None and len(asked) != 1:
        raise UserError(
            f"--svg writes one diagram, and {len(asked)} placements are asked for; name one"
        )
    found = {name: shared.as_asked(details, named(name), size) for name in asked}
    drawn = {name: _drawn_stack(stack, one) for name, one in found.items()}
    if svg is not None:
        from ..catalogue.wiring_svg import diagram

        shared.write_text("--svg", svg, diagram(found[asked[0]], drawn[asked[0]]), WIRING)
    if as_json:
        data = {name: asdict(one) for name, one in found.items()}
        typer.echo(
            json.dumps(data if len(data) > 1 else data[asked[0]], ensure_ascii=False, indent=1)
        )
        return
    from ..catalogue.views import details_view

    for name, one in found.items():
        standard_output().print(details_view(one, size, drawn[name]))


placements_app.command("choose", cls=GroupedCommand)(choose)


def _drawn_stack(asked: str, found: "Details") -> "StackName":
    """Returns the stack whose wiring is shown. Raises UserError for one that the model does not
    have.
    """
    for kind in found.wiring:
        if asked in ("", kind):
            return kind
    raise UserError(f"--stack {asked}: the model has {' and '.join(found.wiring)}")


def _typed(context: typer.Context, name: str) -> bool:
    """Return whether an option stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _size(
    model: str, blocks: str, width: int, ffn_width: int, heads: int, imports: list[str]
) -> "Size":
    """Returns the model to state numbers for, after the user's files have registered their
    placements. Raises UserError.
    """
    from ..catalogue.rows import sized

    shared.run_imports(imports)
    with user_errors(ValueError, said=lambda error: f"--{error}"):
        return sized(model, blocks, width, ffn_width, heads)
