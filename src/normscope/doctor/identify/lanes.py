"""Several streams in one value: how a sub-layer is connected with them, and a formula written out
for each of them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from ..find.segments import Segment
from ..find.terms import Term, ordered, scaled
from ..record import StreamConnection, StreamWeights
from ..trace.graph import Factor
from ..trace.lanes import SUMS_TO_ONE, LaneWeights
from ..trace.operations import Origin

DOUBLY_STOCHASTIC_WITHIN, NOT_BEYOND = 1e-3, 0.05
"""The deviations of row and column sums from 1 that still count as doubly stochastic, and beyond
which they do not.
"""

_Lanes = tuple[Term, ...]


def sources(streams: int) -> _Lanes:
    """Returns a term for each stream before a block."""
    return tuple(Term("source", text=f"x{number}") for number in range(1, streams + 1))


def as_segment(after: _Lanes) -> Segment:
    """Returns the streams after a block, over `sources`, as one piece of a formula that can be
    compared.
    """
    end = Term("other", after, text="streams")
    branches = [term for term in ordered(end) if term.kind == "branch"]
    return Segment(
        Term("source", text="x"), end, tuple(sorted(branches, key=lambda term: term.branch))
    )


def written_out(pieces: Sequence[Segment], streams: int) -> Segment:
    """Returns the pieces of a block, one after the other, with a term for each stream."""
    made = {id(pieces[0].start): sources(streams)}
    for piece in pieces:
        for term in piece.terms:
            made[id(term)] = _lanes(
                term, [made[id(argument)] for argument in term.arguments], streams
            )
    return as_segment(made[id(pieces[-1].end)])


def _lanes(term: Term, arguments: list[_Lanes], streams: int) -> _Lanes:
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


def _weighed(factor: Factor, lanes: _Lanes) -> Term:
    total = scaled(lanes[0], factor)
    for lane in lanes[1:]:
        total = total + scaled(lane, factor)
    return total


def _factor(weights: LaneWeights | None, *, mixing: bool = False) -> Factor:
    """Returns one of the weights: their mean, and what they are made from."""
    if weights is None:
        return Factor(1.0)
    mean = float(weights.values_NOI.double().mean())
    doubly = is_doubly_stochastic(weights) if mixing else None
    return Factor(mean, weights.origin, weights.by_feature_NOID is not None, doubly)


def is_doubly_stochastic(weights: LaneWeights) -> bool | None:
    """Tells whether rows and columns sum to 1; None where they nearly do, or are not known (meta
    device).
    """
    off = weights.from_doubly_stochastic
    if math.isnan(off) or DOUBLY_STOCHASTIC_WITHIN < off <= NOT_BEYOND:
        return None
    return off <= DOUBLY_STOCHASTIC_WITHIN


def connected(segment: Segment, branch: Term) -> StreamConnection | None:
    """Returns how a branch is connected with several streams in its piece of a formula; None for a
    single stream.
    """
    terms = segment.terms
    read = {id(term) for term in Segment(segment.start, branch, ()).terms}
    collapse = _last([term for term in terms if id(term) in read], "collapse")
    outside = [term for term in terms if id(term) not in read]
    expand, connect = _last(outside, "expand"), _last(outside, "connect")
    if expand is None:
        return None
    mixing = None if connect is None else connect.weights
    weighed = next(
        (term.weights for term in (expand, connect, collapse) if term is not None and term.weights),
        None,
    )
    return StreamConnection(
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
    if weights.origin == Origin.TRAINABLE:
        return ()
    written = weights.values_NOI.ne(0).any(-1).any(0).tolist()
    return tuple(number for number, some in enumerate(written, 1) if not some)


def _last(terms: list[Term], kind: str) -> Term | None:
    return next((term for term in reversed(terms) if term.kind == kind), None)


def _weights(term: Term | None) -> StreamWeights | None:
    if term is None or term.weights is None:
        return None
    origin = term.weights.origin
    return StreamWeights(
        made="token"
        if origin == Origin.DATA
        else "trained"
        if origin == Origin.TRAINABLE
        else "constant",
        total=_known(term.weights.total),
        by_feature=term.weights.by_feature_NOID is not None,
        spread=term.weights.spread,
    )


def _known(value: float | None) -> float | None:
    """Returns the value, or None for NaN, which the meta device gives."""
    return None if value is None or math.isnan(value) else value
