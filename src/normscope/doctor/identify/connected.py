"""How several streams are connected with a sub-layer: which weights there are, and what they are made from."""

from dataclasses import dataclass
from typing import Literal

from ..find.terms import Segment, Term
from ..trace.connections import ConnectionKind
from ..trace.lanes import SUMS_TO_ONE, LaneWeights
from ..trace.operations import Origin

Made = Literal["constant", "trained", "token"]
"""What weights are: numbers that nothing trains, trained numbers, or made anew for every token."""


@dataclass(frozen=True, slots=True)
class StreamWeights:
    """LaneWeights between streams."""

    made: Made
    total: float
    """What streams that are all equal are multiplied with, the mean over tokens; NaN on the meta device."""
    by_feature: bool = False
    """Whether every feature has its own."""
    spread: float = 0.0
    """Their standard deviation over tokens and streams, relative to their mean; NaN on the meta device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """Of a sub-layer between several streams in one tensor."""

    streams: int
    collapse: StreamWeights | None
    """What the streams are multiplied with in what the sub-layer reads; None where it reads no sum of them."""
    connect: StreamWeights | None
    """What they are mixed with; None where each goes on as it is."""
    expand: StreamWeights
    """What the sub-layer's output is multiplied with where it is added to each."""
    from_doubly_stochastic: float | None
    """The largest difference of a sum of the mixing's rows or columns from 1, or its largest negative weight, over all
    tokens; None where nothing is mixed, NaN on the meta device."""
    unwritten: tuple[int, ...] = ()
    """Which streams, counted from 1, get none of the sub-layer's output: it is multiplied by exactly 0 there, for every
    token, and by no trained number."""
    tokens_off: float | None = None
    """The share of tokens at which such a sum differs from 1 by more than `SUMS_TO_ONE`; None and NaN likewise."""
    one_side_alone: float | None = None
    """How far rows' sums are from 1 where all columns' are 1, or the other way round; None of any other mixing."""


def connected(segment: Segment, branch: Term) -> Connected | None:
    """How a branch's streams are connected with it in the piece of a formula that it stands in; None of one stream."""
    terms = segment.terms
    read = {id(term) for term in Segment(segment.start, branch, ()).terms}
    collapse = _last([term for term in terms if id(term) in read], "collapse")
    outside = [term for term in terms if id(term) not in read]
    expand, connect = _last(outside, "expand"), _last(outside, "connect")
    if expand is None:
        return None
    mixing = None if connect is None else connect.weights
    weighed = next((term.weights for term in (expand, connect, collapse) if term is not None and term.weights), None)
    return Connected(
        streams=weighed.streams if weighed is not None else 1,
        collapse=_weights(collapse),
        connect=_weights(connect),
        expand=_weights(expand) or StreamWeights("constant", 1.0),
        unwritten=() if expand.weights is None else _unwritten(expand.weights),
        from_doubly_stochastic=None if mixing is None else mixing.from_doubly_stochastic,
        tokens_off=None if mixing is None else mixing.tokens_off(SUMS_TO_ONE),
        one_side_alone=None if mixing is None else mixing.one_side_alone,
    )


def _unwritten(weights: LaneWeights) -> tuple[int, ...]:
    if weights.values_NOI is None or weights.origin == Origin.TRAINABLE:
        return ()
    written = weights.values_NOI.ne(0).any(-1).any(0).tolist()
    return tuple(number for number, some in enumerate(written, 1) if not some)


def _last(terms: list[Term], kind: ConnectionKind) -> Term | None:
    return next((term for term in reversed(terms) if term.kind == kind), None)


def _weights(term: Term | None) -> StreamWeights | None:
    if term is None or term.weights is None:
        return None
    made: Made = "token" if term.weights.origin == Origin.DATA else "constant"
    made = "trained" if term.weights.origin == Origin.TRAINABLE else made
    return StreamWeights(made, term.weights.total, term.weights.by_feature_NOID is not None, term.weights.spread)
