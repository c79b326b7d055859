"""All rules of the linter, asked in turn."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Collection

from ..result import AskedRule, Finding
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
    asked = {rule.id for rule in asked_rules(patient, silenced) if rule.asked}
    found = [finding for rule in RULES if rule.id in asked for finding in rule.check(patient)]
    return tuple(sorted(found, key=lambda finding: -finding.severity.rank))


def asked_rules(patient: Patient, silenced: Collection[str] = ()) -> tuple[AskedRule, ...]:
    """Every rule, in the order of `RULES`: whether it can be asked about a patient, and why not.

    silenced: ids of rules that are not asked; raises ValueError on one that does not exist.
    """
    check_silenced(silenced)
    return tuple(_asked(rule, patient, silenced) for rule in RULES)


def _asked(rule: Rule, patient: Patient, silenced: Collection[str]) -> AskedRule:
    reasons = (
        [_SILENCED] if rule.id in silenced else [reason for need in _needs(rule, patient) if (reason := need(patient))]
    )
    return AskedRule(id=rule.id, asked=not reasons, reason=" and ".join(reasons))


def _needs(rule: Rule, patient: Patient) -> tuple[Callable[[Patient], str], ...]:
    """Weights come first: without them nothing else can be looked for."""
    if patient.nonfinite and not rule.bears_nonfinite:
        return (_finite_weights,)
    return rule.needs if patient.measured or rule.of_structure else (_weights,)


def _weights(patient: Patient) -> str:
    return "it needs weights"


def _finite_weights(patient: Patient) -> str:
    return "some weights are infinite or NaN"


_SILENCED = "it was silenced"


def check_silenced(silenced: Collection[str]) -> None:
    """Raises ValueError on an id that no rule has, naming the nearest that one has."""
    known = [rule.id for rule in RULES]
    for name in silenced:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            raise ValueError(
                f"no rule is called {name!r}; did you mean {near[0]!r}? Known are {', '.join(sorted(known))}"
            )
