"""Studies are found, not listed: every file of a package that holds STUDY is one, or every folder
whose study does.

The tool asks for them through the entry-point group `normscope.studies`: an entry names a function
that returns them by the name one types. A package of one's own offers its studies so too: `studies
= partial(studies_in, __name__)`. Nothing here imports torch: `normscope study --help` reads what
studies say of themselves without it.
"""

import ast
import importlib.util
import pkgutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedStudy:
    """A study as the command line lists it: what it says of itself, and the module that
    measures.
    """

    title: str
    question: str
    help: str
    module: str

    def load(self) -> Any:
        """Returns the `engine.study.Study`, with torch and all that measures imported."""
        return importlib.import_module(self.module).STUDY

    def run(self, **asked: Any) -> list[str]:
        """Answer the study as `Study.answer` takes it; returns what the terminal shows. Raises
        UserError.
        """
        lines: list[str] = self.load().answer(**asked)
        return lines


@cache
def studies() -> dict[str, _ListedStudy]:
    """Returns the studies of this package, by the name one types, in alphabetical order."""
    return studies_in(_PACKAGE)


def studies_in(package: str) -> dict[str, _ListedStudy]:
    """Returns the studies of a package by the name one types, in alphabetical order; imports
    nothing that measures.

    A file that holds STUDY is one, and so is a folder whose `study.py` does. What STUDY says of
    itself is read without running the file, and so is plain text. Raises ValueError for what is
    not.
    """
    spec = importlib.util.find_spec(package)
    found = {}
    for part in sorted(
        pkgutil.iter_modules(spec.submodule_search_locations if spec else ()),
        key=lambda part: part.name,
    ):
        if listed := _listed(f"{package}.{part.name}{'.study' if part.ispkg else ''}"):
            found[part.name.replace("_", "-")] = listed
    return found


def _listed(module: str) -> _ListedStudy | None:
    """`STUDY = Study(title=…, question=…, help=…, …)` of a file; None where it has none, and of no
    file.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id="STUDY")], value=ast.Call(args=[], keywords=keywords)
            ):
                words = {str(one.arg): one.value for one in keywords}
                try:
                    said = {
                        name: ast.literal_eval(words[name])
                        for name in ("title", "question", "help")
                    }
                except (KeyError, ValueError) as error:
                    raise ValueError(
                        f"{spec.origin}:{node.lineno}: title, question and help of STUDY must be "
                        "plain text"
                    ) from error
                return _ListedStudy(module=module, **said)
    return None
