"""Gates that can hardly move, because the curve that bounds them is flat where they stand."""

from collections.abc import Iterator

from ....report.doctor.contents import Finding, Severity
from ...observe.flat_gates import FLAT
from ..rules import Patient, Rule
from ..vectors import at_initialisation, listed


def flat_gates(patient: Patient) -> Iterator[Finding]:
    """Parameters that start where the σ or tanh that is taken of them has lost its slope."""
    flat = patient.observed.flat_gates
    if flat:
        drawn = at_initialisation(patient)
        yield Finding(
            id="flat-gate",
            severity=Severity.WARNING if drawn else Severity.INFO,
            where=listed(gate.name for gate in flat),
            message=f"parameters whose σ or tanh has less than {FLAT:.0%} of its greatest slope, in "
            f"{min(gate.share for gate in flat):.0%} of their entries or more: {len(flat)}. Their gradients are "
            "smaller by as much" + ("" if drawn else "; a training may have led them there"),
            fix="start them nearer to 0, within 3 for σ and 1.5 for tanh, or reach an almost open or shut gate by a "
            "constant outside the curve"
            if drawn
            else "nothing, where they are meant to be open or shut for good",
        )


PLACE = 81
RULES: tuple[Rule, ...] = (
    Rule(
        id="flat-gate",
        severity=Severity.WARNING,
        title="a gate where its σ or tanh is flat",
        explanation="Its gradient is a hundredth or less of what it would be at 0, and an optimiser with steps of one "
        "size, as Adam has, needs thousands of them to bring it back: the gate stays what it started as.",
        reference="Glorot and Bengio 2010, section 3.1, on saturated sigmoids",
        check=flat_gates,
    ),
)
