"""Weights that are infinite or NaN."""

from collections.abc import Iterator

from ...observe.parameters import NonfiniteWeight
from ...result import Finding, Severity
from ..rules import Patient, Rule
from ..vectors import listed


def nonfinite_weights(patient: Patient) -> Iterator[Finding]:
    """Parameters with infinite or NaN entries; -inf alone may be meant, as a mask or as the bias of a class."""
    for severity in (Severity.ERROR, Severity.WARNING):
        found = [one for one in patient.nonfinite if one.only_minus_infinity == (severity is Severity.WARNING)]
        if found:
            entries = sum(one.entries for one in found)
            yield Finding(
                id="nonfinite-weights",
                severity=severity,
                where=listed(one.name for one in found),
                message=f"{entries} of {sum(one.of for one in found)} entries of these parameters are "
                f"{'-inf' if severity is Severity.WARNING else 'infinite or NaN'}. What is said of the structure is "
                "read with 0 in their place; gradients, advice and the other rules are left out",
                fix=_fix(patient, found),
            )


def _fix(patient: Patient, found: list[NonfiniteWeight]) -> str:
    if all(one.only_minus_infinity for one in found):
        return "if it is a mask, register it as a buffer, which no optimiser updates; if not, draw the weights again"
    missing = [one.name for one in found if patient.loading is not None and one.name in patient.loading.missing]
    if missing:
        return f"the checkpoint lacks {listed(missing)}: initialise what it does not hold, or load another one"
    return (
        "go back to a checkpoint from before they appeared, or initialise them: torch.empty and to_empty leave "
        "whatever was in memory"
    )


PLACE = 55
RULES: tuple[Rule, ...] = (
    Rule(
        id="nonfinite-weights",
        severity=Severity.ERROR,
        title="weights that are infinite or NaN",
        explanation="One such entry makes every output NaN that is computed with it, and the first update with a "
        "clipped gradient every weight.",
        reference="IEEE 754-2019, section 6: infinities and NaN propagate through arithmetic; torch.empty, whose "
        "entries are what was in memory",
        check=nonfinite_weights,
        bears_nonfinite=True,
    ),
)
