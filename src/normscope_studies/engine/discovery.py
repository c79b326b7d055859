"""Studies are found, not listed: every file of a package that holds ABOUT is one, or every folder whose study does.

The tool asks for them through the entry-point group `normscope.studies`: an entry names a function that returns them by
the name one types. A package of one's own offers its studies so too: `studies = partial(studies_in, __name__)`.
Nothing here imports torch: `normscope study --help` reads what studies say of themselves without it.
"""

import ast
import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a study says of itself: stands as ABOUT beside STUDY."""

    title: str
    question: str
    """One or two sentences."""
    help: str
    """For the list of studies: the question in at most 51 characters, a line of 80 columns."""


_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedStudy:
    """A study as the command line lists it: what it says of itself, and the module that measures."""

    about: About
    module: str

    def load(self) -> Any:
        """The `engine.study.Study`, with torch and all that measures imported."""
        found = importlib.import_module(self.module).STUDY
        assert found.about == self.about
        return found

    def run(self, **asked: Any) -> list[str]:
        """Answer the study as `Study.answer` takes it; returns what the terminal shows. Raises UserError."""
        lines: list[str] = self.load().answer(**asked)
        return lines


@cache
def studies() -> dict[str, _ListedStudy]:
    """The studies of this package, by the name one types, in alphabetical order."""
    return studies_in(_PACKAGE)


def studies_in(package: str) -> dict[str, _ListedStudy]:
    """The studies of a package by the name one types, in alphabetical order; imports nothing that measures.

    A file that holds ABOUT and STUDY is one, and so is a folder whose `study.py` does. ABOUT is read without running
    the file, and so is made of plain values. Raises ValueError for one that is not.
    """
    spec = importlib.util.find_spec(package)
    found = {}
    for part in sorted(
        pkgutil.iter_modules(spec.submodule_search_locations if spec else ()), key=lambda part: part.name
    ):
        module = f"{package}.{part.name}{'.study' if part.ispkg else ''}"
        if about := _about(module):
            found[part.name.replace("_", "-")] = _ListedStudy(about=about, module=module)
    return found


def _about(module: str) -> About | None:
    """`ABOUT = About(…)` of a file that is not run; None where it has none, and of no file."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="ABOUT")], value=ast.Call(args=[], keywords=keywords)):
                try:
                    return About(**{str(word.arg): ast.literal_eval(word.value) for word in keywords})
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{spec.origin}:{node.lineno}: ABOUT must be made of plain values") from error
    return None
