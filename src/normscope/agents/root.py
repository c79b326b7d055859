"""Paths as a program gives them, held to one folder.

Links and `..` are followed before a path is judged: what counts is where the file lies.
"""

import re
import symtable
from dataclasses import dataclass
from importlib.util import decode_source
from pathlib import Path

from ..errors import UserError
from ..limits.home import from_home
from ..settings.files import factory_in

KINDS = (
    "give FILE.py:FUNCTION that returns a model, a Hugging Face configuration (config.json, or a "
    "class such as GPT2Config), a folder with a checkpoint or a run, or a TOML configuration"
)


@dataclass(frozen=True, slots=True)
class Root:
    """The folder whose files may be read, run and written, without links in its path."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> "Root":
        """Opens the folder as a root. Raises UserError where there is no such folder."""
        found = from_home(folder).resolve()
        if not found.is_dir():
            raise UserError(f"--root {folder}: no such folder; name the folder with your code")
        return cls(found)

    def inside(self, name: str, text: str) -> str:
        """Returns the path, from this folder, of a file or folder that need not be there.

        name: of the argument, for messages. Raises UserError for one that lies elsewhere.
        """
        try:
            path = (self.folder / text).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(f"{name} {text!r} is no path: {error}") from None
        if not path.is_relative_to(self.folder):
            raise UserError(
                f"{name} {text!r} lies outside of {self.folder}: nothing there is read, run or "
                "written; give a path below that folder, or start the server with another --root"
            )
        short = str(path.relative_to(self.folder))
        # A command would take one of these for an option, or for somebody's home.
        return str(path) if short.startswith(("-", "~")) else short

    def existing(self, name: str, text: str) -> str:
        """Returns an existing path as `inside` does. Raises UserError where nothing is there."""
        path = self.inside(name, text)
        if not (self.folder / path).exists():
            raise UserError(f"{name} {text!r}: no such file or folder in {self.folder}")
        return path

    def log(self, name: str, text: str) -> str:
        """Returns the path of a log as `existing` does; a log may be one RUN of several:
        FILE#RUN.
        """
        file, sign, run = text.partition("#")
        return self.existing(name, file) + sign + run

    def target(self, text: str) -> str:
        """Returns a target as a command takes it. Raises UserError for one that names code
        elsewhere, or nothing.
        """
        if (named := factory_in(text)) is not None:
            file, function = named
            path = self.existing("target", str(file))
            _refuse_foreign(self.folder / path, function)
            return f"{path}:{function}"
        if re.fullmatch(r"[A-Za-z]\w*", text) and not (self.folder / text).exists():
            return text
        path = self.inside("target", text)
        if not (self.folder / path).exists():
            raise UserError(f"target {text!r}: nothing of that name in {self.folder}; {KINDS}")
        return path


def _refuse_foreign(file: Path, function: str) -> None:
    """Checks that a file defines the function itself. Raises UserError where it does not.

    What a file imports may be a function of any package, and it would be called with whatever is
    given.
    """
    try:
        source = decode_source(file.read_bytes())
        found = symtable.symtable(source, str(file), "exec").lookup(function)
        defined = found.is_assigned() and not found.is_imported()
    except KeyError:
        defined = False
    except (OSError, SyntaxError, ValueError):
        return  # the command says it better
    if not defined:
        raise UserError(
            f"{file.name} does not define {function!r} itself; name a function that it defines, or "
            "the file that does"
        )
