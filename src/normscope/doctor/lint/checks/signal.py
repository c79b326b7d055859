"""Branches that add nothing or are not heard, and gradients that are lost."""

import math
from collections.abc import Iterator

import torch

from ...result import Finding, Severity
from ..gradient_reach import (
    Place,
    gets_gradient,
    is_closed,
    is_shut_by_gate,
    names,
    trained_in,
    was_differentiated,
)
from ..rules import Patient, Rule
from ..vectors import listed


def dead_sublayers(patient: Patient) -> Iterator[Finding]:
    """Branches that the output does not depend on, that add nothing, or that get no gradient."""
    places = list(patient.sublayers())
    unread = [place for place in places if not place[1].measured.reaches_output]
    if unread:
        yield Finding(
            id="dead-sublayer",
            severity=Severity.WARNING,
            where=names(unread),
            message=f"branches that are computed, but that the output does not depend on: {len(unread)} of "
            f"{len(places)}",
            fix="return the last state of the stream, or leave these sub-layers out",
        )
    read = [place for place in places if place[1].measured.reaches_output and not is_shut_by_gate(place)]
    yield from _closed(patient, [place for place in read if is_closed(place)], len(places))
    yield from _without_gradient(patient, [place for place in read if not is_closed(place)], len(places))


def _closed(patient: Patient, closed: list[Place], count: int) -> Iterator[Finding]:
    opening = [place for place in closed if any(gets_gradient(patient, name) for name in trained_in(patient, place))]
    dead = [place for place in closed if place not in opening and place[1].measured.reaches_loss]
    lone = [place for place in opening if _is_lone(place, closed)]
    if lone:
        yield Finding(
            id="dead-sublayer",
            severity=Severity.WARNING,
            where=names(lone),
            message=f"branches that start at 0, though most of their likes in the other blocks do not: {len(lone)} of "
            f"{count}. They open in training, later than the others",
            fix="draw their last matrix as that of the others, or start all of them at 0",
        )
    opening = [place for place in opening if place not in lone]
    if opening:
        yield Finding(
            id="dead-sublayer",
            severity=Severity.INFO,
            where=names(opening),
            message=f"branches that add exactly 0 to the stream: {len(opening)} of {count}. Their weights get a "
            "gradient, at once or when what is closed beside them has opened: they start closed and open in training",
            fix="nothing, if a last matrix or a gain of zeros is meant",
        )
    if dead:
        yield Finding(
            id="dead-sublayer",
            severity=Severity.ERROR,
            where=names(dead),
            message=f"branches that add 0 to the stream, and none of whose weights gets a gradient, even when all else "
            f"has moved: {len(dead)} of {count}. They stay as they are",
            fix="look for two factors in a row that start at 0, a mask of zeros, frozen weights, or a detached output",
        )


def _is_lone(place: Place, closed: list[Place]) -> bool:
    """Whether fewer than half of the sub-layers of its kind in its stack start closed as well."""
    stack, found = place
    likes = sum(other.kind == found.kind for other in stack.sublayers)
    return 2 * sum(one[0] is stack and one[1].kind == found.kind for one in closed) < likes


def _without_gradient(patient: Patient, acting: list[Place], count: int) -> Iterator[Finding]:
    if not was_differentiated(patient):
        return
    silent = []
    for place in acting:
        trained = trained_in(patient, place)
        # A frozen sub-layer has no gradient on purpose, and neither has one whose output this loss does not ask for.
        if trained and place[1].measured.reaches_loss and not any(gets_gradient(patient, name) for name in trained):
            silent.append(place)
    if silent:
        yield Finding(
            id="dead-sublayer",
            severity=Severity.ERROR,
            where=names(silent),
            message=f"branches that add to the stream, but with a gradient of exactly 0 for all of their trainable "
            f"weights: {len(silent)} of {count}",
            fix="look for detach(), no_grad() or .data between them and the loss, or for gradients that are too small "
            f"for {str(patient.dtype).removeprefix('torch.')}",
        )


def nonfinite_gradients(patient: Patient) -> Iterator[Finding]:
    """A loss or gradients that overflow in the very first pass."""
    norms, loss = patient.observed.gradient_norms, patient.observed.loss_nats
    bad = [name for name, norm in norms.items() if not math.isfinite(norm)]
    seen = [f"gradients of {len(bad)} of {len(norms)} parameters are not finite"] if bad else []
    seen += [f"the loss is {loss}"] if loss is not None and not math.isfinite(loss) else []
    if seen:
        yield Finding(
            id="nonfinite-gradient",
            severity=Severity.ERROR,
            where=listed(bad),
            message=", and ".join(seen),
            fix="look for 0/0 in norms, for a softmax over nothing but masked places, and for values beyond "
            f"{str(patient.dtype).removeprefix('torch.')}'s largest, {torch.finfo(patient.dtype).max:.3g}",
        )


PLACE = 70
RULES: tuple[Rule, ...] = (
    Rule(
        id="dead-sublayer",
        severity=Severity.ERROR,
        title="a sub-layer that does not take part",
        explanation="A branch that adds nothing, is not read or gets no gradient costs its time and learns nothing; a "
        "branch that starts at 0 and gets a gradient is fine.",
        reference="Bachlechner et al. 2020, arXiv:2003.04887, section 3, and Zhang et al. 2019 (Fixup), "
        "arXiv:1901.09321, section 3, for branches that start at 0 and leave it",
        check=dead_sublayers,
    ),
    Rule(
        id="nonfinite-gradient",
        severity=Severity.ERROR,
        title="a loss or gradients that are not finite",
        explanation="The first update would make the weights NaN, or be skipped by a gradient scaler.",
        reference="github.com/marian-nmt/marian-dev/issues/699: an un-normed decoder memory, huge gradients and NaN",
        check=nonfinite_gradients,
    ),
)
