"""How several streams are connected with a sub-layer: which weights there are, and what they are made from."""

import math

from ..find.terms import Segment, Term
from ..record import Connection, Made, StreamWeights
from ..trace.connections import ConnectionKind
from ..trace.lanes import SUMS_TO_ONE, LaneWeights
from ..trace.operations import Origin


def connected(segment: Segment, branch: Term) -> Connection | None:
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
    return Connection(
        streams=weighed.streams if weighed is not None else 1,
        read=_weights(collapse),
        mixing=_weights(connect),
        write=_weights(expand) or StreamWeights(made="constant", total=1.0),
        unwritten=() if expand.weights is None else _unwritten(expand.weights),
        from_doubly_stochastic=None if mixing is None else _known(mixing.from_doubly_stochastic),
        tokens_off=None if mixing is None else _known(mixing.tokens_off(SUMS_TO_ONE)),
        one_side_alone=None if mixing is None else _known(mixing.one_side_alone),
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
    return StreamWeights(
        made=made,
        total=_known(term.weights.total),
        by_feature=term.weights.by_feature_NOID is not None,
        spread=term.weights.spread,
    )


def _known(value: float | None) -> float | None:
    """None for what the meta device does not tell."""
    return None if value is None or math.isnan(value) else value
