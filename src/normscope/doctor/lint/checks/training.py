"""Trained weights that say that they were trained under another wiring than the one they are in."""

import math
from collections.abc import Iterator

from ....report.doctor.contents import Finding, Severity
from ...identify.found import FoundStack
from ..alignment import Alignment, alignment
from ..needs import trained_weights
from ..rules import Patient, Rule
from ..structure import in_blocks

LEAST_DIFFERENCE = 0.15
"""Of correlations; one of 64 unrelated features strays by 0.12, and the mean over sub-layers by less."""
CLEARLY, SURELY = 3.0, 4.0
"""Standard errors of the difference from which there is a warning, and from which there may be an error."""
KNOWS_NATS = 0.5
"""How far below uniform guessing a loss lies that weights in a wrong wiring do not reach."""


def contradicts_training(patient: Patient) -> Iterator[Finding]:
    """A Post-LN checkpoint wired as Pre-LN, or the other way round, found from the weights alone."""
    for number, stack in enumerate(patient.stacks):
        wired = _wired_as(stack)
        found = alignment(patient, number) if wired else None
        if found is None:
            continue
        trained = "Pre-LN" if found.difference > 0 else "Post-LN"
        if trained == wired or abs(found.difference) < LEAST_DIFFERENCE or found.certainty < CLEARLY:
            continue
        yield _finding(patient, stack, found, wired=wired, trained=trained)


def _wired_as(stack: FoundStack) -> str:
    """Which of the two it is like: norms on inputs of sub-layers alone, or on sums alone; "" for others."""
    formulas = [sublayer.formula for sublayer in in_blocks(stack)]
    if all(formula.reads_norm and not formula.sum_is_normed for formula in formulas):
        return "Pre-LN"
    return "Post-LN" if all(formula.sum_is_normed for formula in formulas) else ""


def _finding(patient: Patient, stack: FoundStack, found: Alignment, *, wired: str, trained: str) -> Finding:
    seen = patient.observed
    asked = seen.loss_nats is not None and not seen.loss_is_stand_in and seen.classes is not None and seen.classes > 1
    excess = (seen.loss_nats or 0.0) - math.log(seen.classes or 1)
    at_a_loss = asked and excess > -KNOWS_NATS
    told = ""
    if asked:
        side = "above" if excess > 0 else "below"
        told = f". The loss is {seen.loss_nats:.2f} nats a token, {abs(excess):.2f} {side} uniform guessing"
    own, following = (sum(some) / len(some) for some in (found.own, found.following))
    return Finding(
        id="contradicts-training",
        severity=Severity.ERROR if at_a_loss and found.certainty >= SURELY else Severity.WARNING,
        where=stack.name,
        message=f"wired as {wired}, but trained as {trained}, as far as the weights tell: the gains of its norms go "
        f"with the columns of the matrices of their own sub-layers at a mean correlation of {own:.2f}, and with those "
        f"of the sub-layers after them at {following:.2f} ({found.certainty:.1f} standard errors apart){told}",
        fix=f"set the flag of the placement to {trained}, and compare losses on the data of the training",
    )


PLACE = 45
RULES: tuple[Rule, ...] = (
    Rule(
        id="contradicts-training",
        severity=Severity.ERROR,
        title="Weights that were trained under another wiring",
        explanation="Gains of a norm grow together with the columns of the matrices that read it, and these are its "
        "own sub-layer's in Pre-LN and the next one's in Post-LN, whatever flag the checkpoint is loaded under.",
        reference="Du et al. 2018, arXiv:1806.00900, theorem 2.1, for what gradient flow keeps in balance; "
        "github.com/NVIDIA/NeMo pull request 4350, for such a flag",
        check=contradicts_training,
        needs=(trained_weights,),
    ),
)
