"""Trained weights that say that they were trained under another wiring than the one they are in."""

import math
from collections.abc import Iterator

from ...identify.stacks import wired_like
from ...result import Finding, Severity
from ..alignment import Alignment, alignment
from ..needs import trained_weights
from ..rules import Patient, Rule

LEAST_DIFFERENCE = 0.15
"""Of correlations; one of 64 unrelated features strays by 0.12, and the mean over sub-layers by less."""
CLEARLY = 3.0
"""Standard errors of the difference from which there is a warning."""
SHIFTS_TOGETHER = 0.3
"""Mean correlation of shifts with biases from which norms stood behind their sums; half of what small Post-LN models
reach within 300 updates."""

LEARNED_NATS = 0.3
"""How far below uniform guessing weights lie under one of the wirings, for their losses to tell the two apart."""
LOWER, MUCH_LOWER = 0.05, 0.2
"""By which share of what the weights have learned the other wiring's loss is lower, for a warning and for an error;
and by how many nats at least."""


def contradicts_training(patient: Patient) -> Iterator[Finding]:
    """A Post-LN checkpoint wired as Pre-LN, or the other way round: by its losses under both, else by its weights."""
    told = _by_losses(patient)
    if told is not None:
        yield from told
        return
    for number, stack in enumerate(patient.stacks):
        wired = wired_like(stack)
        found = alignment(patient, number) if wired else None
        trained = _trained_as(found) if found else ""
        if found and trained and trained != wired:
            yield Finding(
                id="contradicts-training",
                severity=Severity.WARNING,
                where=stack.name,
                message=f"wired as {wired}, but trained as {trained}, as far as the weights tell: {_evidence(found)}",
                fix=f"set the flag of the placement to {trained}, and compare losses on the data of the training",
            )


def _by_losses(patient: Patient) -> list[Finding] | None:
    """What the losses under both wirings say; None where they say nothing."""
    seen = patient.observed
    if seen.loss_nats is None or seen.rewired_loss_nats is None or seen.classes is None:
        return None
    learned = math.log(seen.classes) - min(seen.loss_nats, seen.rewired_loss_nats)
    lower = seen.loss_nats - seen.rewired_loss_nats
    if learned < LEARNED_NATS or abs(lower) < LOWER * max(learned, 1.0):
        return None
    if lower < 0:
        return []
    wired = wired_like(patient.stacks[0])
    other = "Post-LN" if wired == "Pre-LN" else "Pre-LN"
    return [
        Finding(
            id="contradicts-training",
            severity=Severity.ERROR if lower >= MUCH_LOWER * max(learned, 1.0) else Severity.WARNING,
            where=patient.stacks[0].name,
            message=f"wired as {wired}, but trained as {other}: on this batch the loss is {seen.loss_nats:.2f} nats a "
            f"token, and {seen.rewired_loss_nats:.2f} with the same weights wired as {other}",
            fix=f"set the flag of the placement to {other}",
        )
    ]


def _trained_as(found: Alignment) -> str:
    """Pre-LN or Post-LN; "" where the weights do not say, or where what they say does not agree."""
    clear = abs(found.difference) >= LEAST_DIFFERENCE and found.certainty >= CLEARLY
    shifted = found.shifts is not None and found.shifts >= SHIFTS_TOGETHER
    if clear and found.difference > 0:
        return "" if shifted else "Pre-LN"
    return "Post-LN" if clear or shifted else ""


def _evidence(found: Alignment) -> str:
    own, following = (sum(some) / len(some) for some in (found.own, found.following))
    words = (
        "the gains of its norms go with the columns of the matrices of their own sub-layers at a mean correlation of "
        f"{own:.2f}, and with those of the sub-layers after them at {following:.2f} ({found.certainty:.1f} standard "
        "errors apart)"
    )
    if found.shifts is None:
        return words
    return f"{words}; their shifts go with the biases of their own sub-layers' outputs at {found.shifts:.2f}"


PLACE = 45
RULES: tuple[Rule, ...] = (
    Rule(
        id="contradicts-training",
        severity=Severity.ERROR,
        title="Weights that were trained under another wiring",
        explanation="Weights lose much of what they learned in the other of Pre-LN and Post-LN, so that the loss on a "
        "batch of the user's, computed under both, tells them apart. Without one, gains of norms go with the matrices "
        "that read them, and shifts of norms behind sums with the biases that are added there.",
        reference="Du et al. 2018, arXiv:1806.00900, theorem 2.1, for what gradient flow keeps in balance; "
        "github.com/NVIDIA/NeMo pull request 4350, for such a flag",
        check=contradicts_training,
        needs=(trained_weights,),
    ),
)
