"""What an untrained model should say: every class is about as likely as any other."""

import math
from collections.abc import Iterator

from torch import nn

from ...result import Finding, Severity
from ..needs import initial_weights, logits
from ..rules import Patient, Rule
from ..vectors import at_initialisation, large_tables

SURPRISE_NATS = 2.0
"""Logits of deviation s start about s²/2 above chance: rows of N(0, 0.02²) give 0.0002 d, 1.6 at a width of 8192."""
LEAK_NATS = 0.5
"""How far below chance a model that knows nothing may come."""
LARGEST_DEVIATION = 4.0
"""Of logits, where no loss was given: 8 nats above chance."""


def loss_far_from_chance(patient: Patient) -> Iterator[Finding]:
    """Before training the loss is ln(classes), as in GPT-2 (0.1 above it), and logits are small."""
    seen = patient.observed
    if seen.classes is None or seen.classes < 2 or not at_initialisation(patient):
        return
    if any(len(weights) == seen.classes for weights in _large(patient)):
        # The rule about embeddings says why: the output is tied to one.
        return
    message, fix = "", _SMALLER
    chance = f"ln {seen.classes} = {math.log(seen.classes):.2f}"
    if seen.loss_nats is None or seen.loss_is_stand_in:
        if seen.logit_deviation is not None and seen.logit_deviation > LARGEST_DEVIATION:
            message = f"logits deviate by {seen.logit_deviation:.3g} before training, and a loss near {chance} wants "
            message += "them to deviate by at most about 1"
    else:
        excess = seen.loss_nats - math.log(seen.classes)
        side = "above" if excess > 0 else "below"
        told = f"the loss before training is {seen.loss_nats:.2f} nats a token, {abs(excess):.2f} {side} {chance}"
        if excess > SURPRISE_NATS:
            message = f"{told}: the model is sure of what it cannot know{_logits(seen.logit_deviation)}"
            fix += "; where logits are small, see that the loss is a mean over tokens and not a sum"
        elif excess < -LEAK_NATS:
            message = f"{told}: a model that knows nothing yet knows its targets{_logits(seen.logit_deviation)}"
            fix = _LEAK
    if message:
        yield Finding(id="loss-far-from-chance", severity=Severity.WARNING, where="", message=message, fix=fix)


def _large(patient: Patient) -> list[nn.Parameter]:
    weights = dict(patient.model.named_parameters(remove_duplicate=False))
    return [weights[name] for name in large_tables(patient.model)]


_SMALLER = (
    "draw the output matrix, or the embedding that it is tied to, at a deviation of at most 1/√width, or scale logits "
    "down"
)
_LEAK = (
    "see that targets are shifted by one, that attention masks the future, and that padding is not counted among the "
    "tokens that the loss is a mean of"
)


def _logits(deviation: float | None) -> str:
    return f" (its logits deviate by {deviation:.3g})" if deviation is not None else ""


PLACE = 90
RULES: tuple[Rule, ...] = (
    Rule(
        id="loss-far-from-chance",
        severity=Severity.WARNING,
        title="a first loss far from that of chance",
        explanation="Above it, the first updates do nothing but shrink logits, at the largest gradients of the whole "
        "training; below it, the loss can see its targets.",
        reference="Karpathy 2019, A Recipe for Training Neural Networks (karpathy.github.io), 'verify loss @ init'",
        check=loss_far_from_chance,
        needs=(
            initial_weights,
            logits,
        ),
    ),
)
