"""The skip path: several streams and what they are mixed with, and a stream that is amplified,
faded or drifts.
"""

import math
from collections.abc import Iterable, Iterator

from ...identify.lanes import NOT_BEYOND
from ...record import Stack, StreamConnection, Sublayer
from ...trace.lanes import SUMS_TO_ONE
from ...trace.operations import Origin
from ..patient import Patient
from ..rule import Fault, rule, stack_rule
from ..structure import factor_of_sum


def _connected(sublayers: Iterable[Sublayer]) -> list[tuple[Sublayer, StreamConnection]]:
    """Returns the sub-layers of several streams, each with its connection to them."""
    return [(one, one.connection) for one in sublayers if one.connection is not None]


@rule("mixing-not-doubly-stochastic")
def mixing_one_sided(patient: Patient) -> Iterator[Fault]:
    """Mixings whose rows or columns all sum to 1, as a softmax or half a round leaves them, but not
    both.
    """
    off = [
        (one, connection.one_side_alone or 0) for one, connection in _connected(patient.sublayers())
    ]
    off = [(one, by) for one, by in off if by > NOT_BEYOND]
    if off:
        yield Fault(
            where=[one for one, _ in off],
            message=(
                "streams are mixed by matrices of which rows or columns sum to 1, but not both: "
                f"the others are off by up to {max(by for _, by in off):.2g} in {len(off)} "
                "sub-layers"
            ),
        )


@rule("branches-halved")
def branches_halved(patient: Patient) -> Iterator[Fault]:
    """Branches that all enter the streams at half their size, because sigmoids of about 0 are not
    doubled.
    """
    every = list(patient.sublayers())
    places = [
        one
        for one, connection in _connected(every)
        if connection.write.made == "token"
        and connection.mixing is not None
        and _is_near(connection.mixing.total, 1, 1e-2)
        and _is_near(connection.write.total, 0.5, 0.05)
    ]
    if places and len(places) == len(every):
        yield Fault(
            where=places,
            message=(
                "the output of every sub-layer is multiplied by about 0.5 where it is added to the "
                f"streams: {len(places)} of them. Sigmoids of small numbers give 0.5, and mHC "
                "doubles them"
            ),
        )


def _is_near(value: float | None, wanted: float, within: float) -> bool:
    return value is not None and abs(value - wanted) < within


@stack_rule("streams-stay-copies")
def copies_for_ever(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Streams that start as copies of each other and get the same at every sub-layer, whatever is
    trained.
    """
    if stack.streams_stay_copies:
        yield Fault(
            where=stack.sublayers,
            message=(
                f"{stack.streams} streams start as copies of each other and are copies after every "
                f"one of {len(stack.sublayers)} sub-layers, also when noise is put on all trained "
                "parameters: they do the work of one"
            ),
        )


@stack_rule("stream-not-written")
def streams_left_out(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Streams that no sub-layer's output is added to."""
    connections = [connection for _, connection in _connected(stack.sublayers)]
    unwritten = (
        sorted(set[int].intersection(*(set(one.unwritten) for one in connections)))
        if connections
        else []
    )
    if unwritten:
        mixed = any(one.mixing is not None for one in connections)
        yield Fault(
            where=stack.sublayers,
            message=(
                f"no sub-layer's output is added to {len(unwritten)} of {stack.streams} streams "
                f"(number {', '.join(map(str, unwritten))}): it is multiplied by exactly 0 there. "
            )
            + (
                "They change by the mixing alone"
                if mixed
                else "They hold to the end what they started with"
            ),
        )


WIDE = 0.5
"""The spread of σ's values about 1/2 from which on it is wide: that of logits with a standard
deviation of 1.3.
"""


@rule("stream-weights-drawn-wide")
def weights_drawn_wide(patient: Patient) -> Iterator[Fault]:
    """Weights of streams that differ so much from token to token and stream to stream that no
    stream starts alike.
    """
    equal = _connected(
        one for stack in patient.stacks if stack.streams_start_equal for one in stack.sublayers
    )
    by_token = [(one, of) for one, of in equal if of.write.made == "token" and not of.unwritten]
    wide = [of.write.spread for _, of in by_token if of.write.spread > WIDE]
    unsure = [of for _, of in by_token if SUMS_TO_ONE < (of.one_side_alone or 0) <= NOT_BEYOND]
    off = [(of.from_doubly_stochastic or 0, of.tokens_off or 0) for of in unsure]
    said = []
    if not patient.trained and 2 * len(wide) > len(by_token):
        said.append(
            f"what is added to streams is multiplied by weights that scatter by {max(wide):.2g} of "
            "their mean over tokens and streams, so that streams which start as copies are unlike "
            "after the first sub-layers"
        )
    if off:
        said.append(
            "after its rounds the mixing's rows or columns sum to 1 up to "
            f"{max(most for most, _ in off):.2g}, and at "
            f"{100 * max(share for _, share in off):.0f} % of the tokens of a sub-layer not within "
            f"{SUMS_TO_ONE:g}"
        )
    if said:
        yield Fault(where=[one for one, _ in by_token], message="; ".join(said))


LARGEST_GROWTH = 2.0


@stack_rule("amplified-stream")
def amplified_stream(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Factors above 1 on the skip path that no norm of the sum takes back."""
    # What grows within a block that ends in a norm of its sum, as a Conformer's does, is taken back
    # there.
    ends = {one.block: one for one in stack.sublayers}
    open_ends = {block for block, last in ends.items() if not last.formula.norms_a_sum}
    raised = [
        (one, factor)
        for one, factor in _skip_factors(stack)
        if factor > 1.0 and one.block in open_ends
    ]
    growth = math.prod(factor for _, factor in raised)
    if growth > LARGEST_GROWTH:
        because = _because(raised[0][0])
        yield Fault(
            where=[found for found, _ in raised],
            message=f"the skip path multiplies the stream by {growth:.3g} over {len(raised)} "
            f"sub-layers, and no norm follows their sums{because}: its mean square goes from "
            f"{stack.source_square:.3g} to {stack.sublayers[-1].measured.sum_square:.3g}",
            fix="add the branch to the stream, x + F(x), and not the stream to itself"
            if because
            else "leave the factor on the skip to placements that norm the sum, as DeepNorm does, "
            "or take 1; of several streams, mix by a matrix whose rows and columns sum to 1",
        )


def _because(found: Sublayer) -> str:
    """Returns a clause where a sum adds a value to itself, as x = x + dropout(x) does; ""
    elsewhere.
    """
    sums = [term.arguments for term in found.formula.segment.terms if term.kind == "sum"]
    return (
        f", for a value is added to itself, {found.formula}" if any(a is b for a, b in sums) else ""
    )


@stack_rule("faded-stream")
def faded_stream(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Factors below 1 on the skip path that leave less of its source than any mean over the
    sub-layers does.
    """
    lowered = [(one, by) for one, by in _skip_factors(stack) if by < 1.0 and not _keeps_square(one)]
    # Tokens with gates of their own for what they keep, feature by feature, as GRUs have, learn to.
    gates = [
        [term.factor for term in one.formula.segment.terms if term.kind == "scale"]
        for one, _ in lowered
    ]
    gated = [
        any(by and by.origin == Origin.DATA and by.vector for by in factors) for factors in gates
    ]
    lowered = [one for one, is_gated in zip(lowered, gated, strict=True) if not is_gated]
    rest, count = math.prod(factor for _, factor in lowered), len(lowered)
    if count > 1 and rest < 1 / count**2:
        yield Fault(
            where=[found for found, _ in lowered],
            message=(
                f"the skip path multiplies the stream by {rest:.3g} over {count} sub-layers: of "
                "what they start from, so much is left at the end, and their gradient falls "
                f"likewise. An even mean leaves 1/{count}. The stream's mean square goes from "
                f"{stack.source_square:.3g} to {stack.sublayers[-1].measured.sum_square:.3g}"
            ),
        )


NEAR_ONE = (0.5, 1.5)
"""The range within which a² + b² is taken to be meant as 1."""
EXACT = 0.01


@stack_rule("drifting-stream")
def drifting_stream(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Factors a of the skip and b of a normed branch whose squares nearly add up to 1, in a formula
    without a name.
    """
    pairs = [
        (found, found.skip_scale**2 + found.branch_scale**2)
        for found, _ in _skip_factors(stack)
        if found.skip_scale is not None
        and found.branch_scale is not None
        and found.formula.branch_is_normed
        if abs(found.skip_scale) < 1 - EXACT
    ]
    off = [(found, total) for found, total in pairs if abs(total - 1) > EXACT]
    meant = all(NEAR_ONE[0] <= total <= NEAR_ONE[1] for _, total in pairs)
    if len(off) > 1 and meant and not patient.trained and not stack.placement:
        totals = [total for _, total in off]
        yield Fault(
            where=[found for found, _ in off],
            message="the squares of what skip and normalised branch are multiplied by add up to "
            f"{min(totals):.3g} to {max(totals):.3g}, not to 1, in {len(off)} sub-layers: the "
            f"stream's mean square goes from {stack.source_square:.3g} to "
            f"{stack.sublayers[-1].measured.sum_square:.3g}",
        )


def _keeps_square(found: Sublayer) -> bool:
    """Tells whether the factors of skip and branch, a² + b² = 1, replace what is lost, as Muse
    Spark's gates do.
    """
    skip, branch, both = found.skip_scale, found.branch_scale, factor_of_sum(found)
    # Without any skip nothing is kept.
    return (
        bool(skip)
        and branch is not None
        and abs(((skip or 0.0) ** 2 + branch**2) * both**2 - 1) < 0.05
    )


def _skip_factors(stack: Stack) -> Iterator[tuple[Sublayer, float]]:
    """Yields the factor of the stream on each sub-layer's skip path, without its sign, where no
    norm follows.

    Of several streams in one tensor that is what they are multiplied with where they are equal.
    """
    for found in stack.sublayers:
        if found.formula.norms_a_sum:
            continue
        if found.connection is not None:
            mixing = found.connection.mixing
            if mixing is not None and mixing.total is not None:
                yield found, abs(mixing.total)
        # Where sub-layers have one formula together, streams stand in tensors of their own, and no
        # path is the skip, but for those side by side.
        elif found.skip_scale is not None and (
            len(found.formula.segment.branches) == 1
            or (found.parallel and found.formula.branch is found.formula.segment.branches[0])
        ):
            yield found, abs(found.skip_scale * factor_of_sum(found))
