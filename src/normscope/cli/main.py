"""The command line. Each verb reads its options, calls one function of the library, and prints what
came back.
"""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from .. import __version__
from ..errors import UserError, installation, is_installed_for_training, not_installed
from ..processes.guard import keep_to_asked
from ..processes.surroundings import hold_lifeline, launched_together, rank_of_environment
from .console import say, show_what_the_terminal_has, stand_in_for_closed, tell
from .help.layout import GroupedCommand
from .shared import WholeLines

_HOMES = {
    "demo": "compare.demo",
    "doctor": "doctor.doctor",
    "predict": "predict.predict",
    "placements": "placements.placements_app",
    "choose": "placements.choose",
    "data": "data.data_app",
    "train": "train.train",
    "compare": "compare.compare",
    "report": "compare.report",
    "evaluate": "trained.evaluate",
    "translate": "trained.translate",
    "generate": "trained.generate",
    "finetune": "finetune.finetune",
    "study": "study.study_app",
    "export": "trained.export",
    "transplant": "transplant.transplant",
    "mcp": "mcp.mcp",
}
"""The file of each verb in this folder, and its name there."""


def command_line(verb: str = "") -> typer.Typer:
    """Returns the command line as far as `verb` needs it: that verb alone, and all of them where
    there is none of the name.

    Whoever types one verb does not wait for the imports of the others; each imports torch, which
    takes seconds, only when it works, and `--help` answers at once.
    """
    app = typer.Typer(
        name="normscope",
        cls=WholeLines,
        pretty_exceptions_enable=False,
        context_settings={"max_content_width": 120},
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_main)
    for name in [verb] if verb in _HOMES else _HOMES:
        file, _, function = _HOMES[name].partition(".")
        found = getattr(import_module(f".{file}", __package__), function)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, cls=GroupedCommand)(found)
    return app


def _version(show: bool) -> None:
    if show:
        typer.echo(f"normscope {__version__}")
        raise typer.Exit


_TRAINING = {
    "normscope demo": (
        "Train Post-LN and Pre-LN, with warm-up and without, in about two minutes; open "
        "demo/report.html afterwards."
    ),
    "normscope compare my.toml --placements post-ln,pre-ln": (
        "Train several placements on your own data and write a report."
    ),
}
"""Commands that one may begin with and what they do, of those that need the extra "train"."""
_LOOKING = {
    "normscope doctor my_model.py:build": (
        "Find the placement of every sub-layer of a model of yours, what is wrong with it, and a "
        "learning rate for it."
    ),
    "normscope predict pre-ln post-ln --blocks 48": (
        "Predict the size of the hidden state and of the gradients over depth from theory, "
        "without a model."
    ),
    "normscope placements": "List every placement with its formula; --long adds source and cost.",
    "normscope choose --blocks 24 --width 1024 --optimizer muon": (
        "Say which placements, rates and warm-ups the evidence supports for a model, and what is "
        "not known."
    ),
}
"""The same of the others."""


def start() -> str:
    """Returns the text for a newcomer who types `normscope` alone: what works in this installation
    comes first.
    """
    if is_installed_for_training():
        demo, compare = _TRAINING.items()
        parts = [_listed([demo, *_LOOKING.items(), compare])]
    else:
        parts = [
            _listed(_LOOKING.items()),
            f"What trains takes more libraries: {installation('train')}. Then:",
            _listed(_TRAINING.items()),
        ]
    return "\n\n".join(
        [
            "NormScope: what does the placement of normalisation do to a Transformer, and does it "
            "need warm-up?",
            "Where to start:",
            *parts,
            "All commands: normscope --help. One command: normscope compare --help. Names complete "
            "in your shell after normscope --install-completion.",
        ]
    )


def _listed(commands: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"  {command}\n      {what}" for command, what in commands)


def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What does the placement of normalisation do to a Transformer, and does it need learning-rate
    warm-up?

    Type `normscope` alone for where to start, and `normscope VERB --help` for one verb.

    For example, two minutes of training with a report at the end:

    \b
      normscope demo
    """
    if context.invoked_subcommand is None:
        tell(start())


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 the user's mistake, 130 after SIGINT,
    143 after SIGTERM.
    """
    stand_in_for_closed()
    hold_lifeline()
    keep_to_asked()
    show_what_the_terminal_has()
    try:
        _refuse_launched(*sys.argv[1:2])
        _run()
    except (UserError, ModuleNotFoundError) as error:
        if not (told := str(error) if isinstance(error, UserError) else not_installed(error)):
            raise
        say(f"error: {told}")
        _leave_unwritten()
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read our output has gone; leave quietly, as other filters do.
        _leave_unwritten()
        sys.exit(1)


_FOR_ONE_PROCESS = ("compare", "demo", "study")
"""Verbs that start trainings by themselves."""


def _refuse_launched(verb: str = "") -> None:
    """Raises UserError in the first of several processes that a launcher has started for a verb
    that one does; the others end with the same exit code.
    """
    if verb not in _FOR_ONE_PROCESS or launched_together() == 1:
        return
    if rank_of_environment() > 0:
        sys.exit(2)
    from ..train.together.joining import refuse_launched

    refuse_launched()


def _run() -> None:
    """Runs the verb. Raises UserError where a disk fails at a place that no narrower guard names: a
    look for a folder, the output.
    """
    try:
        try:
            command_line(*sys.argv[1:2])()
        finally:
            sys.stdout.flush()  # or Python would, when nobody can tell the user any more
    except BrokenPipeError:
        raise
    except OSError:
        from ..files import disk_errors

        with disk_errors(" ".join(["normscope", *sys.argv[1:2]])):
            raise


def _leave_unwritten() -> None:
    """Keeps Python from trying again, at its end, to write output that nobody reads."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
