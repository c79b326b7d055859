"""All rules of the linter in one order: asked in turn, but for those that a project has silenced in
pyproject.toml.
"""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ...limits.reading import read_toml
from ..result import AskedRule, Finding, Severity
from . import around, checks, peers, routed, told, tried
from .patient import Patient, batches_unseen
from .rule import WORDS, Rule

_FILES = [
    file
    for folder in (around, checks, peers, routed, told, tried)
    for file in vars(folder).values()
    if isinstance(file, ModuleType)
]
_MADE = {rule.id: rule for file in _FILES for rule in vars(file).values() if isinstance(rule, Rule)}
RULES: tuple[Rule, ...] = tuple(_MADE[id] for id in WORDS)
"""The rules in the order in which findings of one severity are listed."""


_NOT_FINITE = ("nonfinite-weights", "nonfinite-update", "nonfinite-gradient")
_LEARNS_NOTHING = (
    "no-gradient",
    "stuck-weights",
    "reads-ahead",
    "targets-misplaced",
    "dead-gate",
    "dead-sublayer",
)
"""Nothing, or not what is meant."""
_RATE_FAILS = ("rate-out-of-range",)
_PARTLY = (
    "scores-not-logits",
    "unused-in-optimizer",
    "cut-off-weights",
    "rounded-updates",
    "modes-differ",
)
"""The rules by whose faults some weights learn nothing, or another model is trained."""
_COSTS: tuple[tuple[str, ...], ...] = (_NOT_FINITE, _LEARNS_NOTHING, _RATE_FAILS)
_FIRST_OF_EQUALS = (*_PARTLY, "uneven-updates")
_LAST_OF_EQUALS = ("untied-head",)
"""Wiring that trains no worse for it."""


def _cost(finding: Finding) -> tuple[bool, int, int, int]:
    """Returns the key by which findings are ordered: notes last; what ends a training before what
    only costs; the worst; and among equals weights that do not learn.

    A rate at which trainings fail is told before a wrong wiring, which trains, though worse. Rules
    in their order go on from there: wiring, initialisation, the rest.
    """
    ends = [finding.id in some for some in _COSTS]
    rank = ends.index(True) if any(ends) else len(_COSTS)
    place = len(_FIRST_OF_EQUALS)
    if finding.id in _FIRST_OF_EQUALS:
        place = _FIRST_OF_EQUALS.index(finding.id)
    elif finding.id in _LAST_OF_EQUALS:
        place += 1
    return finding.severity is Severity.INFO, rank, -finding.severity.rank, place


def reasons() -> dict[str, str]:
    """Returns the reason why each rule's findings matter, by the rule's id."""
    return {rule.id: rule.explanation for rule in RULES}


def lint(patient: Patient, silenced: Collection[str] = ()) -> tuple[Finding, ...]:
    """Returns the findings of all rules: what ends a training first, then the worst, then in the
    order of `RULES`, and notes last.

    silenced: ids of rules that are not asked; raises ValueError on one that does not exist.
    """
    asked = {rule.id for rule in asked_rules(patient, silenced) if rule.asked}
    found = [finding for rule in RULES if rule.id in asked for finding in rule.check(patient)]
    if batches_unseen(patient.model, patient.sublayers()):
        found = [_of_unseen_batches(one) for one in found]
    return in_order_of_cost(found)


_OF_SIZES = ("attention-saturated", "loss-far-from-chance", "norm-epsilon", "uneven-blocks")
"""Rules about how large something is in evaluation mode."""


def _of_unseen_batches(finding: Finding) -> Finding:
    if finding.id not in _OF_SIZES or finding.severity is not Severity.WARNING:
        return finding
    return replace(
        finding,
        severity=Severity.INFO,
        message=f"{finding.message}. Batch norms of the blocks have seen no batch yet, and leave "
        "sizes as they are in evaluation mode: in training they may be others",
    )


def in_order_of_cost(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns the findings, given in the order of `RULES`, with what ends a training first and
    notes last.
    """
    return tuple(sorted(findings, key=_cost))


def asked_rules(patient: Patient, silenced: Collection[str] = ()) -> tuple[AskedRule, ...]:
    """Tells of every rule, in the order of `RULES`, whether it can be checked on a patient, and why
    not.

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
    """Checks the ids of silenced rules. Raises ValueError on an id that no rule has, naming the
    nearest that one has, if any is near.
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
    """Returns the ids in `silence` under [tool.normscope.doctor] of the nearest pyproject.toml,
    from `start` upwards; () without.

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
