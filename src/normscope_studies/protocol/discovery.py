"""Studies are found, not listed: every module of a package that holds ABOUT is one.

The tool asks for them through the entry-point group `normscope.studies`: an entry names a function that returns them by
the name one types. A package of one's own offers its studies so too: `studies = partial(studies_in, __name__)`.
"""

import ast
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normscope.errors import UserError

from .about import About

if TYPE_CHECKING:
    from normscope.engines.seam import MakeEngine

    from .study import Findings, Study

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedStudy:
    """A study as the command line lists it: what it says of itself, and the module that measures."""

    about: About
    module: str

    def load(self) -> "Study":
        """The study, with torch and all that measures imported."""
        found: Study = importlib.import_module(self.module).STUDY
        assert found.about == self.about
        return found

    def run(
        self,
        *,
        scale: str,
        settings: Sequence[str],
        given: Mapping[str, Any],
        out: Path,
        engine: "MakeEngine",
        watch: Callable[[str, int, int], None],
        say: Callable[[str], None],
        command: str,
    ) -> list[str]:
        """Measure what `out` lacks, write the page and the data, and return what the terminal shows of them.

        settings: KEY=VALUE changes of the scale. given: settings that came by options of their own. Raises UserError.
        """
        from .pieces import Pieces
        from .settings import configured
        from .study import run_study

        study = self.load()
        if scale not in study.scales:
            raise UserError(f"--scale must be one of {', '.join(study.scales)}, got {scale!r}")
        config = configured(study.scales[scale].config, settings, given)
        pieces = Pieces(out, watch=watch, say=say, engine=engine)
        found, page = run_study(study, config, pieces, command=command, scale=scale)
        return [*_lines(self.about.title, found, study.caution(scale)), f"page: {page}"]


@cache
def studies() -> dict[str, ListedStudy]:
    """The studies of this package, by the name one types, in alphabetical order."""
    return studies_in(_PACKAGE)


def studies_in(package: str) -> dict[str, ListedStudy]:
    """The studies of a package by the name one types, in alphabetical order; imports nothing that measures.

    A folder with ABOUT in its `__init__.py` is one, with STUDY in its `study.py`; so is a file that holds both, whose
    ABOUT is read without running it and so is made of plain values. Raises ValueError for an ABOUT that is not.
    """
    spec = importlib.util.find_spec(package)
    found = {}
    for part in sorted(
        pkgutil.iter_modules(spec.submodule_search_locations if spec else ()), key=lambda part: part.name
    ):
        module = f"{package}.{part.name}"
        about = getattr(importlib.import_module(module), "ABOUT", None) if part.ispkg else _read(module)
        if isinstance(about, About):
            measuring = f"{module}.study" if part.ispkg else module
            found[part.name.replace("_", "-")] = ListedStudy(about=about, module=measuring)
    return found


def _read(module: str) -> About | None:
    """`ABOUT = About(…)` of a file that is not run; None where it has none."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="ABOUT")], value=ast.Call(args=[], keywords=keywords)):
                try:
                    return About(**{str(word.arg): ast.literal_eval(word.value) for word in keywords})
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{spec.origin}:{node.lineno}: ABOUT must be made of plain values") from error
    return None


def _lines(title: str, found: "Findings", caution: str) -> list[str]:
    """What the terminal shows: conditions, every claim beside what was measured, and the count of verdicts."""
    from normscope.evidence.verdict import tally
    from normscope.report.numbers import counted

    lines = [title, *(f"  {key}: {value}" for key, value in found.conditions), *found.lines]
    for claim in found.claims:
        lines += [
            f"{claim.name}: {claim.verdict}{f' ({claim.conditions})' if claim.conditions else ''}",
            f"  claim:    {claim.statement} [{claim.source}]",
            f"  measured: {claim.found}",
        ]
    if found.claims:
        lines.append(f"{counted(len(found.claims), 'claim')}: {tally(claim.verdict for claim in found.claims)}.")
        lines += [caution] if caution else []
    return lines
