"""Options that several verbs have, placements of the user's own, and files that the user names."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..signals import Interrupted, Stopped
from .console import say

if TYPE_CHECKING:
    from ..exchange.averaging import Averaged

Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, such as model.width=256.")
]
Which = Annotated[
    str,
    typer.Option("--checkpoint", help="Checkpoint: best (lowest validation loss), last, or the number of an update."),
]
Average = Annotated[
    str | None,
    typer.Option(
        metavar="last:N|UPDATES",
        help="Take the mean of the weights of several checkpoints instead: the last N, or those of these updates, "
        "separated by commas.",
    ),
]
Beam = Annotated[int, typer.Option(help="Number of hypotheses that the search keeps; 1 is greedy search.")]
LengthPenalty = Annotated[
    float,
    typer.Option(
        help="Exponent in score = sum of log-probabilities / length ** length_penalty, the end token counted."
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME|FILE.toml",
        help="Where the runs train: local, ray or slurm, or a TOML file with a table [engine].  [default: the "
        "configuration's [engine], or local]",
        show_default=False,
    ),
]
StopWhen = Annotated[
    str | None,
    typer.Option(
        "--stop-when",
        metavar="decided[:N]",
        help="End a run early once its validation loss is not below the unigram baseline at 3 validations in a row, or "
        "at N, after the peak of its schedule; without the option such a run goes on.  [default: never]",
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")]
Imports = Annotated[
    list[str], typer.Option("--import", metavar="FILE.py", help="Python file that registers placements of your own.")
]


def run_imports(files: list[str]) -> None:
    """Run the user's files, which register placements. Raises UserError."""
    if files:
        from ..settings.files import import_file

        for file in files:
            import_file(Path(file))


@contextmanager
def resumable() -> Iterator[None]:
    """What a signal ends, the same command resumes: one line says so, and the exit code names the signal."""
    try:
        yield
    except (Interrupted, Stopped, KeyboardInterrupt) as error:
        stop = Stopped(signal.SIGINT) if isinstance(error, KeyboardInterrupt) else error
        say(f"{stop}; run the same command to resume")
        raise typer.Exit(stop.exit_code) from None


def listed(text: str, kind: Callable[[str], Any], option: str) -> list[Any]:
    """Return the values that commas separate. Raises UserError naming the option."""
    try:
        return [kind(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise UserError(f"--{option} takes comma-separated values, got {text!r}: {error}") from error


def refuse_unwritable(option: str, file: Path) -> None:
    """Raise UserError where `file`, given with `option`, cannot be a file: to be asked before long work."""
    if file.is_dir() or not file.parent.is_dir():
        raise UserError(f"{option} {file}: {'is a folder' if file.is_dir() else 'its folder does not exist'}")


def write_text(option: str, file: Path, text: str) -> None:
    """Write a file that the user named with `option`. Raises UserError where that cannot be."""
    from ..files import write_atomically

    refuse_unwritable(option, file)
    try:
        write_atomically(file, text)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error


@contextmanager
def averaged_if_asked(run: Path, which: str, average: str | None) -> Iterator[tuple[Path, str, "Averaged | None"]]:
    """The run and the checkpoint to load, and of which checkpoints it is the mean if it is one. Raises UserError."""
    if average is None:
        yield run, which, None
        return
    if which != "best":
        raise UserError(
            f"--checkpoint {which} takes one checkpoint, and --average {average} several; leave one of them out"
        )
    from ..exchange.averaging import averaged

    with averaged(run, average) as found:
        yield found.run, "last", found


def as_asked(make: Callable[..., Any], *given: Any, **values: Any) -> Any:
    """What `make` gives for what the user asked for; its ValueError is the user's mistake."""
    try:
        return make(*given, **values)
    except ValueError as error:
        raise UserError(str(error)) from error
