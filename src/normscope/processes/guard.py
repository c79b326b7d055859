"""Code of one folder: a process runs Python files of that folder and of installed packages, and
tells which of the folder's it has run. So do the processes of ours that it starts.

Python tells its audit hooks of every code object before it is run, and of every library of another
language before it is loaded. That a file is refused there holds for what files import, too. What a
file of the folder does by itself is not held back: this is no sandbox.
"""

import json
import os
import site
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

_VARIABLE = "NORMSCOPE_KEEP_TO"
"""Set for a process that is to run code of one folder: what `keep_to` is given, as JSON."""
_RAN, _REFUSED = "ran", "refused"


def kept_to(folder: Path, scratch: Path, told: Path) -> dict[str, str]:
    """Returns the environment, beside another, of a command of ours that is to `keep_to` these."""
    return {_VARIABLE: json.dumps([str(folder), str(scratch), str(told)])}


def keep_to_asked() -> None:
    """Has this process `keep_to` what the one that started it asks for, if it does."""
    if (asked := os.environ.get(_VARIABLE)) is not None:
        keep_to(*json.loads(asked))


def keep_to(folder: str, scratch: str, told: str) -> None:
    """Keeps this process from running Python files that lie outside of `folder` and of what is
    installed.

    scratch: a folder whose files may run unnamed, as compilers write them. told: the file to which
    the names go, for `CodeRun.read`.

    Another file is not run, and whoever imports it sees an ImportError.
    """
    descriptor = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    root = os.path.realpath(folder)
    unnamed = (*_installed(), os.path.realpath(scratch))
    seen: set[str] = set()

    def tell(word: str, file: str) -> None:
        line = f"{word} {file}"
        if line not in seen:
            seen.add(line)
            os.write(descriptor, (line + "\0").encode("utf-8", "surrogateescape"))

    def judge(name: str) -> None:
        file = os.path.realpath(name)
        if _lies_in(file, unnamed):
            return
        if not _lies_in(file, (root,)):
            tell(_REFUSED, file)
            raise ImportError(f"{file} was not run: it lies outside of --root {root}")
        tell(_RAN, file)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "exec":
            name = getattr(arguments[0], "co_filename", "")
        elif event == "import":
            name = arguments[1]  # of a library of another language alone
        else:
            return
        # Code that was made of a string has a name in angle brackets.
        if isinstance(name, str) and name and not name.startswith("<"):
            judge(name)

    # Python writes the bytecode of a file beside it before anybody is asked whether it may run.
    sys.dont_write_bytecode = True
    sys.addaudithook(hook)


def _installed() -> tuple[str, ...]:
    """Returns the folders of installed packages, of the standard library, and of NormScope."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = [sysconfig.get_path(name) for name in names]
    found += [*site.getsitepackages(), site.getusersitepackages()]
    ours = Path(__file__).parents[1]
    found += [str(ours), str(ours.with_name("normscope_studies"))]
    return tuple(dict.fromkeys(map(os.path.realpath, found)))


def _lies_in(file: str, folders: tuple[str, ...]) -> bool:
    return any(os.path.commonpath([file, folder]) == folder for folder in folders)


@dataclass(frozen=True, slots=True)
class CodeRun:
    """The files that a guarded process has run, and those that it would not, each in order."""

    ran: tuple[str, ...]
    refused: tuple[str, ...]

    @classmethod
    def read(cls, told: Path) -> "CodeRun":
        """Reads what `keep_to` has written; nothing where there is no such file."""
        text = told.read_bytes().decode("utf-8", "surrogateescape") if told.exists() else ""
        lines = [line.partition(" ") for line in text.split("\0") if line]
        ran = [file for word, _, file in lines if word == _RAN]
        refused = [file for word, _, file in lines if word == _REFUSED]
        return cls(tuple(ran), tuple(refused))
