"""The definition of a rule: a generator that looks at a patient and yields what it finds wrong."""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..record import Stack
from ..result import Finding, Severity
from ..trace.code_places import NO_PLACES
from .patient import Patient, listed, named


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A finding as a rule yields it, without the rule's own id and severity, which the rule
    adds.
    """

    where: str | Iterable[Any]
    """The subject: a text as in `Finding`, names to be listed, or things that have a name."""
    message: str
    """The message and the fix, as in `Finding`."""
    fix: str = ""
    """"" for the rule's own."""
    severity: Severity | None = None
    """The severity; None for the rule's own."""
    in_code: bool = True
    """True where a place in the user's code makes the fault; False where only the optimiser's
    settings do.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that can be wrong."""

    id: str
    """Words with hyphens, such as missing-final-norm; what pyproject.toml silences."""
    severity: Severity
    """The worst that it reports."""
    title: str
    """The fault in a few words."""
    explanation: str
    """The reason why it matters, in a sentence or two."""
    reference: str
    """Paper and section, or a public issue where it happened."""
    fix: str = ""
    """The change to make, where faults do not say it themselves."""
    faults: Callable[[Patient], Iterable[Fault]]
    needs: tuple[Callable[[Patient], str], ...] = ()
    """The needs of the rule: functions at the end of `patient.py` that say what the patient
    lacks.
    """
    of_structure: bool = False
    """True where it can be checked on a structure without weights and measurements."""
    bears_nonfinite: bool = False
    """True where it can be checked although weights are infinite or NaN, and measurements are of 0
    in their place.
    """

    def lacking(self, patient: Patient) -> list[str]:
        """Returns the reasons why the rule cannot be checked on a patient, as clauses. Without
        weights nothing else is looked for.
        """
        if patient.nonfinite and not self.bears_nonfinite:
            return ["some weights are infinite or NaN"]
        if not patient.measured and not self.of_structure:
            return ["it needs weights"]
        return [reason for need in self.needs if (reason := need(patient))]

    def check(self, patient: Patient) -> Iterator[Finding]:
        """Yields what the rule finds; nothing where it cannot be checked."""
        for fault in [] if self.lacking(patient) else self.faults(patient):
            names = [fault.where] if isinstance(fault.where, str) else named(fault.where)
            first = names[0] if names else ""
            places = patient.places if fault.in_code else NO_PLACES
            yield Finding(
                id=self.id,
                severity=fault.severity or self.severity,
                where=fault.where if isinstance(fault.where, str) else listed(names),
                built_at=places.built_at(first),
                called_at=places.called_at(first),
                message=fault.message,
                fix=fault.fix or self.fix,
            )


WORDS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("rules.toml").read_text(encoding="utf-8")
)
"""The severity and the words of each rule by its id, in the order in which findings of one severity
are listed.
"""


def rule(
    id: str,
    *needs: Callable[[Patient], str],
    of_structure: bool = False,
    bears_nonfinite: bool = False,
) -> Callable[[Callable[[Patient], Iterable[Fault]]], Rule]:
    """Make a rule, whose words stand under its id, of the generator below. The fields are those of
    `Rule`.
    """
    words = {name: " ".join(text.split()) for name, text in WORDS[id].items()}
    return lambda faults: Rule(
        id=id,
        severity=Severity(words["severity"]),
        title=words["title"],
        explanation=words["why"],
        reference=words["reference"],
        fix=words.get("fix", ""),
        faults=faults,
        needs=needs,
        of_structure=of_structure,
        bears_nonfinite=bears_nonfinite,
    )


def stack_rule(
    id: str, *needs: Callable[[Patient], str], of_structure: bool = False
) -> Callable[[Callable[[Patient, Stack], Iterable[Fault]]], Rule]:
    """The same of a generator that looks at one of the patient's stacks, and is asked about each in
    turn.
    """
    made = rule(id, *needs, of_structure=of_structure)
    return lambda faults: made(
        lambda patient: (fault for one in patient.stacks for fault in faults(patient, one))
    )
