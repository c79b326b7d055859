"""Factors on the skip path: streams that grow, fade or drift over depth."""

import math
from collections.abc import Iterator

from ...record import Stack, Sublayer
from ...result import Finding, Severity
from ..rules import Patient, Rule
from ..vectors import at_initialisation, listed

LARGEST_GROWTH = 2.0


def amplified_stream(patient: Patient) -> Iterator[Finding]:
    """Factors above 1 on the skip path that no norm of the sum takes back."""
    for stack in patient.stacks:
        raised = [(found, factor) for found, factor in _skip_factors(stack) if factor > 1.0]
        growth = math.prod(factor for _, factor in raised)
        if growth > LARGEST_GROWTH:
            yield Finding(
                id="amplified-stream",
                severity=Severity.WARNING,
                where=listed(found.name for found, _ in raised),
                message=f"the skip path multiplies the stream by {growth:.3g} over {len(raised)} sub-layers, and no "
                f"norm follows their sums: its mean square goes from {stack.source_square:.3g} to "
                f"{stack.sublayers[-1].measured.sum_square:.3g}",
                fix="leave the factor on the skip to placements that norm the sum, as DeepNorm does, or take 1; of "
                "several streams, mix by a matrix whose rows and columns sum to 1",
            )


def faded_stream(patient: Patient) -> Iterator[Finding]:
    """Factors below 1 on the skip path that leave less of its source than any mean over the sub-layers does."""
    for stack in patient.stacks:
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
                f"1/{count}. The stream's mean square goes from {stack.source_square:.3g} to "
                f"{stack.sublayers[-1].measured.sum_square:.3g}",
                fix="let the factor on the skip approach 1 with depth, as √((k - 1)/k) does; of several streams, mix "
                "by a matrix whose rows and columns sum to 1",
            )


NEAR_ONE = (0.5, 1.5)
"""Between these a² + b² is taken to be meant as 1."""
EXACT = 0.01


def drifting_stream(patient: Patient) -> Iterator[Finding]:
    """Factors a of the skip and b of a normed branch whose squares nearly add up to 1, in a formula without a name."""
    if not at_initialisation(patient):
        return
    for stack in patient.stacks:
        if stack.placement:
            continue
        pairs = [
            (found, found.skip_scale**2 + found.branch_scale**2)
            for found, _ in _skip_factors(stack)
            if found.skip_scale is not None and found.branch_scale is not None and found.formula.branch_is_normed
            if abs(found.skip_scale) < 1 - EXACT
        ]
        off = [(found, total) for found, total in pairs if abs(total - 1) > EXACT]
        if len(off) < 2 or any(not NEAR_ONE[0] <= total <= NEAR_ONE[1] for _, total in pairs):
            continue
        totals = [total for _, total in off]
        yield Finding(
            id="drifting-stream",
            severity=Severity.INFO,
            where=listed(found.name for found, _ in off),
            message=f"the squares of what skip and normed branch are multiplied by add up to {min(totals):.3g} to "
            f"{max(totals):.3g}, not to 1, in {len(off)} sub-layers: the stream's mean square goes from "
            f"{stack.source_square:.3g} to {stack.sublayers[-1].measured.sum_square:.3g}",
            fix="where the mean square is to stay, take a² + b² = 1, as √((k - 1)/k) and 1/√k have it",
        )


def _keeps_square(found: Sublayer) -> bool:
    """Whether the factors of skip and branch, a² + b² = 1, replace what is lost, as Muse Spark's gates do."""
    skip, branch = found.skip_scale, found.branch_scale
    return skip is not None and branch is not None and abs(skip**2 + branch**2 - 1) < 0.05


def _skip_factors(stack: Stack) -> Iterator[tuple[Sublayer, float]]:
    """What each sub-layer multiplies the stream with on the skip path, without its sign, where no norm follows.

    Of several streams in one tensor that is what they are multiplied with where they are equal.
    """
    for found in stack.sublayers:
        if found.formula.norms_a_sum:
            continue
        if found.connection is not None:
            mixing = found.connection.mixing
            if mixing is not None and mixing.total is not None:
                yield found, abs(mixing.total)
        # Where sub-layers have one formula together, streams stand in tensors of their own, and no path is the skip.
        elif found.skip_scale is not None and len(found.formula.segment.branches) == 1:
            yield found, abs(found.skip_scale)


PLACE = 71
RULES: tuple[Rule, ...] = (
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
    Rule(
        id="drifting-stream",
        severity=Severity.INFO,
        title="factors of skip and branch that nearly keep the stream's size",
        explanation="Where a² + b² = 1, and the branch is normed, the stream's mean square stays where it starts; if "
        "a square root was forgotten, or skip and branch count sub-layers from another number, it drifts.",
        reference="Beam, transformers 5.23, `depth_scaled_residual_add`: √((k - 1)/k) and 1/√k",
        check=drifting_stream,
    ),
)
