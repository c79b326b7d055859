"""The one exception that stands for a user's mistake: the command line prints its message and exits
with code 2.
"""

import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path


class UserError(Exception):
    """Something the user can put right. The message says what came, what is allowed and what to do.

    Anything else that escapes is a fault of NormScope and keeps its traceback. What came may be
    megabytes long, or steer a terminal: the message is one line that can be printed, cut in the
    middle where it is long.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_printable(message))


_LONGEST = 2000


def _printable(message: str) -> str:
    if len(message) > _LONGEST:
        # Names come first and advice last.
        message = f"{message[: _LONGEST - 600]} … {message[-500:]}"
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in message
    )


@contextmanager
def user_errors(*kinds: type[BaseException], said: Callable[..., str] = str) -> Iterator[None]:
    """Make a UserError of each exception of these kinds within the block. said: its message, of the
    exception.
    """
    try:
        yield
    except kinds as error:
        raise UserError(said(error)) from error


@contextmanager
def no_end() -> Iterator[None]:
    """Makes a UserError of an end of the program that code within the block asks for.

    A model's forward that calls `sys.exit(0)` would end our command as if all had been done, and a
    notebook's kernel with it. So would any other BaseException that somebody's code defines for
    itself; Ctrl-C, and what our own signals raise, end the command as they do elsewhere.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if type(error).__module__.partition(".")[0] == __package__:
            raise
        # Rich ends the program so where nobody reads its output any more, as `head` does not.
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            raise
        raise UserError(
            f"code that NormScope ran ended the program: {error_line(error)}; let it return, or "
            "raise an error that says what is wrong"
        ) from error


def option(name: str, value: object = None, *, python: str = "") -> str:
    """Returns an option of the command line in a message, with the parameter that has its meaning
    in Python: either was given.

    option("peak_lr") is "--peak-lr (peak_lr in Python)", and option("from_step", 8) is "--from-step
    8 (from_step=8 in Python)". python: the parameter's name where it is another.
    """
    words, parameter = "--" + name.replace("_", "-"), python or name
    if value is not None:
        words, parameter = f"{words} {value}", f"{parameter}={value!r}"
    return f"{words} ({parameter} in Python)"


def in_one_line(error: BaseException) -> str:
    """ "TypeError: what it says", with line breaks and runs of blanks as single blanks, cut at 300
    characters.
    """
    said = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {said if len(said) <= 300 else said[:299] + '…'}" if said else name


_OURS = Path(__file__).parent
_NOT_THEIRS = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def error_line(error: BaseException) -> str:
    """Returns the error in one line, with file and line of the innermost place in the user's code,
    where there is one.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    missing = (
        isinstance(error, ModuleNotFoundError)
        and (error.name or "").partition(".")[0] == "transformers"
    )
    mend = f": {installation('huggingface')}" if missing else ""
    return f"{in_one_line(error)}{place_in_user_code(error)}{mend}"


@cache
def is_users_code(file: str) -> bool:
    """Tells whether a file of code belongs to no installed package, not to the standard library,
    and not to NormScope.
    """
    return not file.startswith((*_NOT_THEIRS, "<")) and _OURS not in Path(file).parents


def place_in_user_code(error: BaseException) -> str:
    """ " (file, line number)" of the innermost place in the user's code; "" where no such code was
    running.
    """
    theirs = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if is_users_code(frame.filename)
    ]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""


PUBLISHED = False
"""True once `pip install normscope` finds the package. Until then it is installed from a clone of
its repository.
"""


def installation(extra: str) -> str:
    """Returns the command that installs an optional extra, such as "huggingface", as it works at
    present.
    """
    return (
        f"pip install 'normscope[{extra}]'"
        if PUBLISHED
        else f"in a clone of NormScope, pip install '.[{extra}]'"
    )


_OF_TRAINING = frozenset({"tokenizers", "sacremoses", "sacrebleu", "sentencex", "tensorboard"})
"""The libraries that only `data`, training and its logs import: the extra "train"."""


def is_installed_for_training() -> bool:
    """Tells whether every library of the extra "train" is installed, without importing any of
    them.
    """
    try:
        return all(find_spec(library) is not None for library in _OF_TRAINING)
    except (ModuleNotFoundError, ValueError):  # of a library that is there in part
        return False


def not_installed(error: ModuleNotFoundError) -> str:
    """Returns what to do where a library of the extra "train" is missing, in one line; "" for any
    other module.
    """
    library = (error.name or "").partition(".")[0]
    return (
        f"this takes {library}, which is not installed: {installation('train')}"
        if library in _OF_TRAINING
        else ""
    )
