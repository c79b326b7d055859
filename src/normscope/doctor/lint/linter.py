"""All rules of the linter, asked in turn; and the ones that a project has silenced."""

import difflib
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ...report.doctor.contents import Finding
from .checks import checkpoint as lint_structure_checkpoint
from .checks import constants as lint_constants
from .checks import gates as lint_gates
from .checks import initialisation as lint_initialisation
from .checks import norms as lint_structure_norms
from .checks import numbers as lint_numbers
from .checks import optimizer as lint_optimizer
from .checks import placements as lint_structure_placements
from .checks import signal as lint_signal
from .checks import start as lint_start
from .checks import sums as lint_structure_sums
from .rules import Patient, Rule

_FILES = (
    lint_structure_sums,
    lint_structure_norms,
    lint_structure_placements,
    lint_structure_checkpoint,
    lint_constants,
    lint_initialisation,
    lint_signal,
    lint_gates,
    lint_start,
    lint_numbers,
    lint_optimizer,
)
RULES: tuple[Rule, ...] = tuple(rule for file in _FILES for rule in file.RULES)
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


def silenced_in(start: Path) -> tuple[str, ...]:
    """Ids in `silence` under [tool.normscope.doctor] of the nearest pyproject.toml, from `start` upwards; () without.

    Raises ValueError with file and key where that is no list of rules.
    """
    path = start.resolve()
    for folder in (path, *path.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return _silenced(file)
    return ()


def _silenced(file: Path) -> tuple[str, ...]:
    try:
        table: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not valid TOML: {error}") from error
    at = ""
    for key in ("tool", "normscope", "doctor"):
        at = f"{at}.{key}" if at else key
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise ValueError(f"{file}: {at} must be a table, got {table!r}")
    unknown = [key for key in table if key != "silence"]
    if unknown:
        raise ValueError(f"{file}: unknown key {at}.{unknown[0]}; allowed is silence")
    ids = table.get("silence", [])
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise ValueError(f"{file}: {at}.silence must be a list of rule ids, got {ids!r}")
    try:
        check_silenced(ids)
    except ValueError as error:
        raise ValueError(f"{file}: {at}.silence: {error}") from error
    return tuple(ids)
