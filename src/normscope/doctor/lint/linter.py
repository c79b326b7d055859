"""All rules of the linter in one order: asked in turn, but for those that a project has silenced in
pyproject.toml.
"""

import difflib
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

from ...limits.reading import read_toml
from ..result import AskedRule, Finding
from . import checks, routed, tried
from .patient import Patient
from .rule import WORDS, Rule

_FILES = [
    file
    for folder in (checks, routed, tried)
    for file in vars(folder).values()
    if isinstance(file, ModuleType)
]
_MADE = {rule.id: rule for file in _FILES for rule in vars(file).values() if isinstance(rule, Rule)}
RULES: tuple[Rule, ...] = tuple(_MADE[id] for id in WORDS)
"""In the order in which findings of one severity are listed."""


_ENDS_TRAINING = (
    # Nothing is finite,
    "nonfinite-weights",
    "nonfinite-update",
    "nonfinite-gradient",
    # nothing, or not what is meant, is learnt,
    "no-gradient",
    "stuck-weights",
    "reads-ahead",
    "targets-misplaced",
    "scores-not-logits",
    "dead-gate",
    "dead-sublayer",
    "unused-in-optimizer",
    "cut-off-weights",
    "rounded-updates",
    "modes-differ",
    # and the rate is one at which trainings fail.
    "rate-out-of-range",
    "uneven-updates",
)
"""What is told before all others of its severity, for it is what ends a training or costs most."""


def _cost(finding: Finding) -> int:
    """The place of a finding among those of its severity, of what it costs."""
    known = finding.id in _ENDS_TRAINING
    return _ENDS_TRAINING.index(finding.id) if known else len(_ENDS_TRAINING)


def reasons() -> dict[str, str]:
    """Why each rule's findings matter, by its id."""
    return {rule.id: rule.explanation for rule in RULES}


def lint(patient: Patient, silenced: Collection[str] = ()) -> tuple[Finding, ...]:
    """What the rules find, the worst first; of equals what ends a training, then in the order of
    `RULES`.

    silenced: ids of rules that are not asked; raises ValueError on one that does not exist.
    """
    asked = {rule.id for rule in asked_rules(patient, silenced) if rule.asked}
    found = [finding for rule in RULES if rule.id in asked for finding in rule.check(patient)]
    return tuple(sorted(found, key=lambda finding: (-finding.severity.rank, _cost(finding))))


def asked_rules(patient: Patient, silenced: Collection[str] = ()) -> tuple[AskedRule, ...]:
    """Every rule, in the order of `RULES`: whether it can be asked about a patient, and why not.

    silenced: ids of rules that are not asked; raises ValueError on one that does not exist.
    """
    check_silenced(silenced)
    reasons = {
        rule.id: ["it was silenced"] if rule.id in silenced else rule.lacking(patient)
        for rule in RULES
    }
    return tuple(
        AskedRule(id=id, asked=not why, reason=" and ".join(why)) for id, why in reasons.items()
    )


def check_silenced(silenced: Collection[str]) -> None:
    """Raises ValueError on an id that no rule has, naming the nearest that one has, if any is
    near.
    """
    known = [rule.id for rule in RULES]
    for name in silenced:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else "."
            raise ValueError(
                f"no rule is called {name!r}{meant} Known are {', '.join(sorted(known))}"
            )


def silenced_in(start: Path) -> tuple[str, ...]:
    """Ids in `silence` under [tool.normscope.doctor] of the nearest pyproject.toml, from `start`
    upwards; () without.

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
        table: Any = read_toml(file)
    except ValueError as error:
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
