"""All rules of the linter, asked in turn."""

import difflib
import importlib
import pkgutil
from collections.abc import Collection

from ...report.doctor.contents import Finding
from . import checks
from .rules import Patient, Rule


def _discovered() -> tuple[Rule, ...]:
    """The rules of every file in `checks`, by the files' places and, within a file, as they stand there."""
    found = pkgutil.iter_modules(checks.__path__)
    files = [importlib.import_module(f"{checks.__name__}.{file.name}") for file in found]
    return tuple(rule for file in sorted(files, key=lambda file: (file.PLACE, file.__name__)) for rule in file.RULES)


RULES: tuple[Rule, ...] = _discovered()
"""Every rule, each id once."""


def lint(patient: Patient, silenced: Collection[str] = ()) -> tuple[Finding, ...]:
    """What the rules find, the worst first, and of equals in the order of `RULES`.

    silenced: ids of rules that are not asked; raises ValueError on one that does not exist.
    """
    check_silenced(silenced)
    found = [finding for rule in RULES if rule.id not in silenced for finding in rule.check(patient)]
    return tuple(sorted(found, key=lambda finding: -finding.severity.rank))


def check_silenced(silenced: Collection[str]) -> None:
    """Raises ValueError on an id that no rule has, naming the nearest that one has."""
    known = [rule.id for rule in RULES]
    for name in silenced:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            raise ValueError(
                f"no rule is called {name!r}; did you mean {near[0]!r}? Known are {', '.join(sorted(known))}"
            )
