"""Where in the user's own code an error came from."""

import sysconfig
import traceback
from pathlib import Path

from ..errors import in_one_line

_OURS = Path(__file__).parents[1]
_NOT_THEIRS = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def told(error: BaseException) -> str:
    """The error in one line, with file and line of the innermost place in the user's code, where there is one."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    return f"{in_one_line(error)}{place(error)}"


def place(error: BaseException) -> str:
    """ " (file, line number)" of the innermost place in the user's code; "" where no such code was running."""
    theirs = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_NOT_THEIRS, "<")) and _OURS not in Path(frame.filename).parents
    ]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
