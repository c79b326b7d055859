"""The command line. Each verb reads its options, calls one function of the library, and prints what came back."""

import os
import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import UserError
from .compare import compare, demo
from .console import say
from .data import data_app
from .doctor import doctor
from .evaluate import evaluate
from .exchange import export, import_, re_place
from .finetune import finetune
from .placements import placements_app
from .predict import predict
from .study import study_app
from .train import train
from .translate import translate

# Importing torch takes seconds, so every verb imports what it needs itself and `--help` answers at once.

app = typer.Typer(
    name="normscope",
    help="What does the placement of normalisation do to a Transformer, and does it need learning-rate warm-up?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.command("demo")(demo)
app.command("doctor")(doctor)
app.command("predict")(predict)
app.add_typer(placements_app, name="placements")
app.add_typer(data_app, name="data")
app.command("train")(train)
app.command("compare")(compare)
app.command("evaluate")(evaluate)
app.command("translate")(translate)
app.command("finetune")(finetune)
app.add_typer(study_app, name="study")
app.command("export")(export)
app.command("import")(import_)
app.command("re-place")(re_place)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"normscope {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before the verb."""


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 the user's mistake, 130 after SIGINT, 143 after SIGTERM."""
    try:
        app()
    except UserError as error:
        say(f"error: {error}")
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read our output has gone; leave quietly, as other filters do.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
