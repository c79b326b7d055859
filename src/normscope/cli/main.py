"""The command line. Each verb reads its options, calls one function of the library, and prints what came back."""

import os
import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import UserError
from ..processes.surroundings import hold_lifeline
from .compare import compare, demo
from .console import fitted, say, show_what_the_terminal_has
from .data import data_app
from .doctor import doctor
from .finetune import finetune
from .placements import choose, placements_app
from .predict import predict
from .shared import Verbs
from .study import study_app
from .train import train
from .trained import convert_placement, evaluate, export, generate, import_, translate
from .tune import tune
from .watch import report, watch

# Importing torch takes seconds, so every verb imports what it needs itself and `--help` answers at once.

app = typer.Typer(
    name="normscope",
    cls=Verbs,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120},
    rich_markup_mode=None,
)
app.command("demo")(demo)
app.command("doctor")(doctor)
app.command("predict")(predict)
app.add_typer(placements_app, name="placements")
app.command("choose")(choose)
app.add_typer(data_app, name="data")
app.command("train")(train)
app.command("compare")(compare)
app.command("tune")(tune)
app.command("watch")(watch)
app.command("report")(report)
app.command("evaluate")(evaluate)
app.command("translate")(translate)
app.command("generate")(generate)
app.command("finetune")(finetune)
app.add_typer(study_app, name="study")
app.command("export")(export)
app.command("import")(import_)
app.command("convert-placement")(convert_placement)
# The name that the verb had at first.
app.command("re-place", hidden=True)(convert_placement)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"normscope {__version__}")
        raise typer.Exit


START = """NormScope: what does the placement of normalisation do to a Transformer, and does it need warm-up?

Where to start:

  normscope demo
      Train Post-LN and Pre-LN, with warm-up and without, in about two minutes; open demo/report.html afterwards.
  normscope doctor my_model.py:build
      Find the placement of every sub-layer of a model of yours, what is wrong with it, and a learning rate for it.
  normscope predict pre-ln post-ln --blocks 48
      Predict the size of the hidden state and of the gradients over depth from theory, without a model.
  normscope placements
      List every placement with its formula; --long adds source and cost.
  normscope choose --blocks 24 --width 1024 --optimizer muon
      Say which placements, rates and warm-ups the evidence supports for a model, and what is not known.
  normscope compare my.toml --placements post-ln,pre-ln
      Train several placements on your own data and write a report.

All verbs: normscope --help. One verb: normscope compare --help. Names complete in your shell after \
normscope --install-completion."""
"""What a newcomer reads who types `normscope` alone."""


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What does the placement of normalisation do to a Transformer, and does it need learning-rate warm-up?

    For example, two minutes of training with a report at the end:

    \b
      normscope demo

    Type `normscope` alone for where to start, and `normscope VERB --help` for one verb.
    """
    if context.invoked_subcommand is None:
        typer.echo(fitted(START))


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 the user's mistake, 130 after SIGINT, 143 after SIGTERM."""
    hold_lifeline()
    show_what_the_terminal_has()
    try:
        _run()
    except UserError as error:
        say(f"error: {error}")
        _leave_unwritten()
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read our output has gone; leave quietly, as other filters do.
        _leave_unwritten()
        sys.exit(1)


def _run() -> None:
    """Raises UserError where a disk fails at a place that no narrower guard names: a look for a folder, the output."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # or Python would, when nobody can tell the user any more
    except BrokenPipeError:
        raise
    except OSError:
        from ..files import disk_errors

        with disk_errors(" ".join(["normscope", *sys.argv[1:2]])):
            raise


def _leave_unwritten() -> None:
    """Have Python not try again, at its end, to write output that nobody takes."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
