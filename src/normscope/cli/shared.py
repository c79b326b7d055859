"""The parts that several verbs share: options, names of placements, early refusals, files of the
user, and lists of verbs.

What is refused here is refused before torch is imported, which takes seconds; the library says the
same of what reaches it by another way."""

import os
import signal
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import UserError, no_end, user_errors
from ..limits.home import from_home
from ..limits.inset import Inset
from ..limits.kinds import FileKind
from ..limits.ours import refuse_other, refuse_part
from ..processes.surroundings import launched_together, rank_of_environment
from ..settings.files import GivenConfig, given_config, named_files, refuse_no_run
from ..signals import Interrupted, Stopped
from .console import say
from .help.layout import LaidOut

if TYPE_CHECKING:
    from ..engines.choosing import EngineSettings

COMPARE = "api/comparison.py:compare"
"""The function that describes the options of verbs that train several runs."""


def read_config(
    config: Path | None, settings: Iterable[str], imports: list[str], *, trust: bool = True
) -> GivenConfig:
    """Returns the configuration that the user gave. Raises UserError where it cannot be read, and
    where its placement is unknown after `imports`.

    trust: whether the command is the user's word for the Python files that the configuration names:
    one that trains.
    """
    from ..placement import named

    given = given_config(config, settings, imports)
    said = {Path(file).resolve() for file in imports}
    for file in named_files(given.table, source=given.source):
        if file.path not in said and trust:
            file.run()
        elif not file.has_run:
            raise UserError(
                f"{given.source} names Python that runs on your word alone: {file.path}; --trust "
                f"runs it, and so does --import {file.path}"
            )
    model = given.table.get("model")
    placement = model.get("placement") if isinstance(model, dict) else None
    if isinstance(placement, str):
        with user_errors(ValueError, said=lambda error: f"{given.source}: model: {error}"):
            named(placement)
    return given


def refuse_missing_target(target: str) -> None:
    """Raise UserError for a target of the doctor that names a file which is not there."""
    before, sign, _ = target.partition(":")
    file = from_home(before if sign else target)
    if file.suffix in (".py", ".toml", ".json") and not file.exists():
        raise UserError(f"no such file: {before}" if sign else f"no such file or folder: {target}")
    if file.suffix == ".py" and not sign:
        raise UserError(f"{target} holds Python: name the function too, as in {target}:function")


def complete_placements(incomplete: str) -> list[str]:
    """Returns the completions that the shell offers for a name that is being typed, after a comma
    too.
    """
    from ..placement import registered

    before, comma, begun = incomplete.rpartition(",")
    given = before.split(",")
    return [
        f"{before}{comma}{name}"
        for name in [*registered(), "all"]
        if name.startswith(begun) and name not in given
    ]


PlacementWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PLACEMENT]...",
        help="Names of placements, separated by spaces or commas; `all` for every one.",
        autocompletion=complete_placements,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG.toml",
        help="Configuration, or FILE.py:FUNCTION that builds a model of your own; without either, "
        "every default.",
    ),
]


def placement_names(given: Iterable[str]) -> list[str]:
    """Returns the registered names in the order given, each once, separated by commas or as words
    of their own.

    `all` stays as it is, where it stands alone: which placements there are depends on the model.
    Raises UserError for a name that is not registered, naming the nearest one, and for `all` beside
    a name.
    """
    from ..placement import named

    words = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if "all" in words and len(set(words)) > 1:
        raise UserError(
            "`all` stands alone, and here it stands beside "
            f"{', '.join(n for n in words if n != 'all')}"
        )
    with user_errors(ValueError):
        return list(dict.fromkeys(word if word == "all" else named(word).name for word in words))


SettingOptions = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, such as model.width=256."),
]
EngineSettingOptions = Annotated[
    list[str],
    typer.Option(
        "--engine-set",
        metavar="KEY=VALUE",
        help="Change one setting of the engine, such as gpus_per_run=0.5.",
    ),
]
StopWhen = Annotated[str | None, typer.Option(metavar="decided[:N]")]
Imports = Annotated[
    list[str],
    typer.Option(
        "--import", metavar="FILE.py", help="Python file that registers placements of your own."
    ),
]


def run_imports(files: list[str]) -> None:
    """Run the user's files, which register placements. Raises UserError."""
    if files:
        from ..settings.files import import_file

        for file in files:
            import_file(Path(file))
        from ..placement import registered

        with user_errors(ValueError):
            registered()


Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run the Python files that the run or configuration names, if they are as then.",
    ),
]


def open_trained(run: Path, imports: list[str], trust: bool) -> None:
    """Raise UserError where there is no run; run the Python files that the user names, or trusts
    the run to name.
    """
    refuse_no_run(run)
    run_imports(imports)
    if trust:
        from ..runs.config import trust_run

        trust_run(run)


def engine_asked(name: str, given: Iterable[str]) -> "EngineSettings":
    """Returns the settings of the engine that the command line gives. Raises UserError where there
    is no such engine or setting.
    """
    from ..engines.choosing import engine_settings
    from ..settings.tables import read_overrides

    return engine_settings(name, read_overrides(given))


@contextmanager
def resumable() -> Iterator[None]:
    """Has a signal end the command with one line that says how to resume; the exit code names the
    signal.
    """
    try:
        yield
    except (Interrupted, Stopped, KeyboardInterrupt) as error:
        stop = Stopped(signal.SIGINT) if isinstance(error, KeyboardInterrupt) else error
        say(f"{stop}; run the same command to resume")
        raise typer.Exit(stop.exit_code) from None


@contextmanager
def spoken_once() -> Iterator[None]:
    """Has the first process of a training report a mistake that all processes meet; the others end
    with the same exit code. A mistake that one process meets alone, such as a file that its machine
    lacks, is reported by that process.
    """
    rank = rank_of_environment()
    if launched_together() > 1:
        # Torch tells of a process that has gone in forty lines of its own code.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        yield
    except (UserError, Interrupted, Stopped) as error:
        if rank == 0 or _is_own(error):
            raise
        raise typer.Exit(getattr(error, "exit_code", 2)) from None
    except Exception as error:
        from ..train import PeerLost

        if not isinstance(error, PeerLost):
            raise
        if error.tells:
            say(str(error))
        raise typer.Exit(1) from None


def _is_own(error: BaseException) -> bool:
    """Tells whether no other process of this machine has met the error too."""
    if not isinstance(error, UserError):
        return False
    from ..train.together.group import OwnError, SharedError

    first_of_machine = os.environ.get("LOCAL_RANK") == "0"
    return isinstance(error, OwnError) or (first_of_machine and not isinstance(error, SharedError))


def amount(text: str | float) -> float:
    """Returns a number as people write large ones: 5B, 300M, 1.5e9. Raises UserError."""
    units = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
    written = str(text).strip().upper()
    try:
        return float(written[:-1]) * units[written[-1]] if written[-1:] in units else float(written)
    except ValueError:
        raise UserError(f"{text!r} is no number; write it such as 5B, 300M or 1.5e9") from None


def refuse_unwritable(option: str, file: Path, kind: FileKind) -> None:
    """Raise UserError where `file`, given with `option`, cannot be written: to be asked before long
    work.
    """
    refuse_no_place(option, file, kind)
    refuse_other(file, kind)


def refuse_no_place(option: str, file: Path, kind: FileKind) -> None:
    """Raise UserError where there can be no file of that name, or where a run, a corpus or another
    folder of ours has one that is not of this kind.
    """
    if file.is_dir() or not file.parent.is_dir():
        raise UserError(
            f"{option} {file}: {'is a folder' if file.is_dir() else 'its folder does not exist'}"
        )
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise UserError(
            f"{option} {file}: no permission to write into {file.parent}; name another folder"
        )
    refuse_part(file, kind)


def refuse_other_picture(option: str, file: Path, kind: FileKind) -> None:
    """Raise UserError where `file` has the name of another kind of picture than SVG, or cannot be
    written.
    """
    if file.suffix.lower() != ".svg":
        raise UserError(
            f"{option} {file}: a picture is written as SVG; name a file such as "
            f"{file.with_suffix('.svg')}"
        )
    refuse_unwritable(option, file, kind)


def write_text(option: str, file: Path, text: str, kind: FileKind) -> None:
    """Write a file that the user named with `option`. Raises UserError where that cannot be."""
    from ..files import write_over

    refuse_no_place(option, file, kind)
    with user_errors(OSError, said=lambda error: f"cannot write {file}: {error.strerror}"):
        write_over(file, text, kind)


def write_inset(option: str, file: Path, text: str, inset: Inset) -> None:
    """Write what has a place of its own in a file that the user named with `option`, and leave the
    rest of it, and its mode, as they are. Raises UserError where that cannot be.
    """
    from ..files import write_atomically

    refuse_no_place(option, file, inset.kind)
    content = inset.set_into(file, text)
    with user_errors(OSError, said=lambda error: f"cannot write {file}: {error.strerror}"):
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else None
        write_atomically(file, content)
        if mode is not None:
            file.chmod(mode)


def as_asked(make: Callable[..., Any], *given: Any, **values: Any) -> Any:
    """Returns what `make` gives for what the user asked for; its ValueError is the user's
    mistake.
    """
    with user_errors(ValueError):
        return make(*given, **values)


VERBS = {
    "Begin here": ("demo",),
    "Look at placements and models": ("placements", "choose", "predict", "doctor"),
    "Train and compare": ("data", "train", "compare", "report"),
    "Use what was trained": ("evaluate", "translate", "generate", "finetune"),
    "To other libraries, and to other placements": ("export", "transplant"),
    "Measure what the paper claims": ("study",),
    "For agents and editors": ("mcp",),
}
"""The verbs that are shown, in order; a test holds that none is missing."""


class WholeLines(LaidOut, TyperGroup):
    """Verbs, in a list whose first sentences are wrapped and not cut; those of `normscope` itself
    stand in groups.

    For a verb or an option that was removed it names what to use instead.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the verb that is typed first. Raises UserError for one that was removed."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            _refuse_removed(ctx, args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb.

        Raises UserError where it is given an option that was removed, and where code of the user's
        that it runs asks for the end of the program.
        """
        try:
            with no_end():
                return super().invoke(ctx)
        except Exception as error:
            # Known by what it says: the class of an unknown option's error lies in click or in
            # typer, by their versions.
            option, where = getattr(error, "option_name", None), getattr(error, "ctx", None)
            if option is not None and where is not None:
                _refuse_removed(where, option)
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, and the verbs after them."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs, each with the first sentence of its help."""
        shown = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        sections = VERBS if ctx.parent is None else {"Commands": shown}
        for title, names in sections.items():
            with formatter.section(title):
                first = {
                    name: (self.commands[name].help or "").partition("\n\n")[0] for name in names
                }
                formatter.write_dl(
                    [
                        (name, " ".join(text.split()).removesuffix("."))
                        for name, text in first.items()
                    ]
                )


def _refuse_removed(ctx: Any, word: str) -> None:
    # Needed by no command line that is right.
    from .removed import refuse_removed

    refuse_removed(_verbs(ctx), word)


def _verbs(ctx: Any) -> list[str]:
    """Returns the verbs that were typed up to a command, `normscope` itself left out."""
    return [] if ctx.parent is None else [*_verbs(ctx.parent), ctx.info_name]
