"""Branches that add nothing or are not heard, gradients that are lost, and streams that grow on the skip path."""

import math
from collections.abc import Iterator

import torch

from ....report.doctor.contents import Finding, Severity
from ...identify.found import FoundStack, FoundSublayer
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
    unread = [place for place in places if not place[2].reaches_output]
    if unread:
        yield Finding(
            id="dead-sublayer",
            severity=Severity.WARNING,
            where=names(unread),
            message=f"branches that are computed, but that the output does not depend on: {len(unread)} of "
            f"{len(places)}",
            fix="return the last state of the stream, or leave these sub-layers out",
        )
    read = [place for place in places if place[2].reaches_output and not is_shut_by_gate(place)]
    yield from _closed(patient, [place for place in read if is_closed(place)], len(places))
    yield from _without_gradient(patient, [place for place in read if not is_closed(place)], len(places))


def _closed(patient: Patient, closed: list[Place], count: int) -> Iterator[Finding]:
    opening = [place for place in closed if any(gets_gradient(patient, name) for name in trained_in(patient, place))]
    dead = [place for place in closed if place not in opening and place[2].reaches_loss]
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
    stack, found, _ = place
    likes = sum(other.kind == found.kind for other in stack.sublayers)
    return 2 * sum(one[0] is stack and one[1].kind == found.kind for one in closed) < likes


def _without_gradient(patient: Patient, acting: list[Place], count: int) -> Iterator[Finding]:
    if not was_differentiated(patient):
        return
    silent = []
    for place in acting:
        trained = trained_in(patient, place)
        # A frozen sub-layer has no gradient on purpose, and neither has one whose output this loss does not ask for.
        if trained and place[2].reaches_loss and not any(gets_gradient(patient, name) for name in trained):
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


LARGEST_GROWTH = 2.0


def amplified_stream(patient: Patient) -> Iterator[Finding]:
    """Factors above 1 on the skip path that no norm of the sum takes back."""
    for stack, seen in zip(patient.stacks, patient.observed.stacks, strict=True):
        raised = [(found, factor) for found, factor in _skip_factors(stack) if factor > 1.0]
        growth = math.prod(factor for _, factor in raised)
        if growth > LARGEST_GROWTH:
            yield Finding(
                id="amplified-stream",
                severity=Severity.WARNING,
                where=listed(found.name for found, _ in raised),
                message=f"the skip path multiplies the stream by {growth:.3g} over {len(raised)} sub-layers, and no "
                f"norm follows their sums: its mean square goes from {seen.source_square:.3g} to "
                f"{seen.sublayers[-1].sum_square:.3g}",
                fix="leave the factor on the skip to placements that norm the sum, as DeepNorm does, or take 1; of "
                "several streams, mix by a matrix whose rows and columns sum to 1",
            )


def faded_stream(patient: Patient) -> Iterator[Finding]:
    """Factors below 1 on the skip path that leave less of its source than any mean over the sub-layers does."""
    for stack, seen in zip(patient.stacks, patient.observed.stacks, strict=True):
        lowered = [
            (found, factor) for found, factor in _skip_factors(stack) if factor < 1.0 and not _keeps_square(found)
        ]
        rest, count = math.prod(factor for _, factor in lowered), len(lowered)
        if count > 1 and rest < 1 / count**2:
            yield Finding(
                id="faded-stream",
                severity=Severity.WARNING,
                where=listed(found.name for found, _ in lowered),
                message=f"the skip path multiplies the stream by {rest:.3g} over {count} sub-layers: of what they "
                f"start from, so much is left at the end, and their gradient falls likewise. An even mean leaves "
                f"1/{count}. The stream's mean square goes from {seen.source_square:.3g} to "
                f"{seen.sublayers[-1].sum_square:.3g}",
                fix="let the factor on the skip approach 1 with depth, as √((k - 1)/k) does; of several streams, mix "
                "by a matrix whose rows and columns sum to 1",
            )


def _keeps_square(found: FoundSublayer) -> bool:
    """Whether the factors of skip and branch, a² + b² = 1, replace what is lost, as Muse Spark's gates do."""
    skip, branch = found.skip_scale, found.branch_scale
    return skip is not None and branch is not None and abs(skip**2 + branch**2 - 1) < 0.05


def _skip_factors(stack: FoundStack) -> Iterator[tuple[FoundSublayer, float]]:
    """What each sub-layer multiplies the stream with on the skip path, without its sign, where no norm follows.

    Of several streams in one tensor that is what they are multiplied with where they are equal.
    """
    for found in stack.sublayers:
        if found.formula.sum_is_normed:
            continue
        if found.connected is not None:
            if found.connected.connect is not None:
                yield found, abs(found.connected.connect.total)
        # Where sub-layers have one formula together, streams stand in tensors of their own, and no path is the skip.
        elif found.skip_scale is not None and len(found.formula.segment.branches) == 1:
            yield found, abs(found.skip_scale)


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
    Rule(
        id="amplified-stream",
        severity=Severity.WARNING,
        title="a factor above 1 on a skip path without norms",
        explanation="It is taken once a sub-layer, so that the stream grows exponentially with depth, and what later "
        "branches add is lost in it.",
        reference="Wang et al. 2022, arXiv:2203.00555, figure 2, where a norm follows every sum; joeynmt, whose "
        "`initializer: xavier_normal` turned DeepNorm's factors on for Pre-LN too",
        check=amplified_stream,
    ),
    Rule(
        id="faded-stream",
        severity=Severity.WARNING,
        title="a factor below 1 on a skip path, once a sub-layer",
        explanation="The embedding and the first blocks' work are lost exponentially with depth, forward and in the "
        "gradient; factors that approach 1 with depth lose them no faster than a mean does.",
        reference="He et al. 2016, arXiv:1603.05027, section 3.1: shortcuts times 0.5 do not converge well at 110 "
        "layers",
        check=faded_stream,
    ),
)
