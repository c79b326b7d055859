"""A formula over several streams in one value, written out for each stream as the registry's formulas are."""

import math
from collections.abc import Sequence
from dataclasses import replace

from ..find.terms import Segment, Term, ordered, scaled
from ..trace.graph import Factor
from ..trace.lanes import LaneWeights

DOUBLY_STOCHASTIC_WITHIN, NOT_BEYOND = 1e-3, 0.05
"""Of sums from 1. Twenty rounds of Sinkhorn and Knopp are far closer than the first where logits are small, and up to
0.031 away at the width and the initial weights of DeepSeek-V4; between the two nothing is known."""

Lanes = tuple[Term, ...]


def sources(streams: int) -> Lanes:
    """A term for each stream before a block."""
    return tuple(Term("source", text=f"x{number}") for number in range(1, streams + 1))


def as_segment(after: Lanes) -> Segment:
    """Streams after a block, over `sources`, as one piece of a formula that can be compared."""
    end = Term("other", after, text="streams")
    branches = [term for term in ordered(end) if term.kind == "branch"]
    return Segment(Term("source", text="x"), end, tuple(sorted(branches, key=lambda term: term.branch)))


def written_out(pieces: Sequence[Segment], streams: int) -> Segment:
    """The pieces of a block, one after the other, with a term for each stream."""
    made = {id(pieces[0].start): sources(streams)}
    for piece in pieces:
        for term in piece.terms:
            made[id(term)] = _lanes(term, [made[id(argument)] for argument in term.arguments], streams)
    return as_segment(made[id(pieces[-1].end)])


def _lanes(term: Term, arguments: list[Lanes], streams: int) -> Lanes:
    if term.kind == "collapse":
        (read,) = arguments
        return (_weighed(_factor(term.weights), read),)
    if term.kind == "connect":
        (read,) = arguments
        return tuple(_weighed(_factor(term.weights, mixing=True), read) for _ in range(streams))
    if term.kind == "expand":
        # What was computed of every stream on its own goes to that stream.
        lanes = arguments[0] * (streams // len(arguments[0]))
        return tuple(scaled(lane, _factor(term.weights)) for lane in lanes)
    count = max(map(len, arguments), default=1)
    wide = [lanes * (count // len(lanes)) for lanes in arguments]
    return tuple(replace(term, arguments=tuple(lanes[n] for lanes in wide)) for n in range(count))


def _weighed(factor: Factor, lanes: Lanes) -> Term:
    total = scaled(lanes[0], factor)
    for lane in lanes[1:]:
        total = total + scaled(lane, factor)
    return total


def _factor(weights: LaneWeights | None, *, mixing: bool = False) -> Factor:
    """One of the weights: their mean, and what they are made from."""
    if weights is None:
        return Factor(1.0)
    mean = float("nan") if weights.values_NOI is None else float(weights.values_NOI.double().mean())
    doubly = is_doubly_stochastic(weights) if mixing else None
    return Factor(mean, weights.origin, weights.by_feature_NOID is not None, doubly)


def is_doubly_stochastic(weights: LaneWeights) -> bool | None:
    """Whether rows and columns sum to 1; None where they nearly do, or are not known (meta device)."""
    off = weights.from_doubly_stochastic
    if math.isnan(off) or DOUBLY_STOCHASTIC_WITHIN < off <= NOT_BEYOND:
        return None
    return off <= DOUBLY_STOCHASTIC_WITHIN
