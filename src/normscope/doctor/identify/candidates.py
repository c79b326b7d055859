"""The registry's formulas for a stack of the observed shape, in the form in which the observed one
stands.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from typing import Any, Literal

from ...placement import Placement, Site, StackShape, SublayerKind, registered
from ...placement.base import Initial, State
from ..find.branches import BranchKind, InnerPlace
from ..find.segments import Segment, segments
from ..find.terms import Term, normed, ordered, parameter_term
from ..trace.graph import Factor
from ..trace.operations import Origin
from .lanes import as_segment, sources
from .matching import matches

_Kinds = tuple[tuple[SublayerKind, ...], ...]
SPOKEN_OF: Mapping[BranchKind, SublayerKind] = {
    "attention": "attention",
    "cross_attention": "cross_attention",
    "feed_forward": "feed_forward",
    # No formula speaks of these.
    "convolution": "feed_forward",
    "mixer": "attention",
}
"""The kind of sub-layer by which a formula calls each kind of branch."""
_PLACES: Mapping[str, Literal["score", "value"]] = {
    "query": "score",
    "key": "score",
    "value": "value",
}


class _Norms:
    """The norms of a formula, all alike; which one it is does not show in what a model computes."""

    def __call__(self, x: Term, /, *, groups: int | None = None) -> Term:
        made = normed(x)
        return replace(made, by_head=groups is not None and groups > 1)

    def __getattr__(self, name: str) -> "_Norms":
        if name.startswith("_"):
            raise AttributeError(name)
        return self


@dataclass(slots=True)
class _End:
    norm: _Norms = field(default_factory=_Norms)

    def parameter(
        self, name: str, *, initial: Initial, shape: tuple[int, ...] = (), **_: Any
    ) -> Term:
        return parameter_term(initial, shape)

    def scheduled(self, name: str, *, initial: float) -> Term:
        return Term("number", factor=Factor(initial, Origin.BUFFER))


@dataclass(slots=True, kw_only=True)
class _Sublayer(_End):
    """F of a formula; `number` counts the sub-layers of the stack from 0."""

    site: Site
    number: int

    def __call__(self, x: Term, /, **inside: Callable[[Term], Term]) -> Term:
        norms = []
        for place, function in inside.items():
            found = [term for term in ordered(function(Term("source"))) if term.kind == "norm"]
            where: Literal["score", "value", "output", "hidden"] = _PLACES.get(place, "output")
            where = "hidden" if self.site.kind == "feed_forward" else where
            norms += [InnerPlace(where, term.by_head) for term in found]
        return Term(
            "branch", (x,), branch=self.number, inside=tuple(sorted(norms)), text=self.site.kind
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A placement's formula for one stack."""

    placement: type[Placement]
    started: Term
    """The stream before the first sub-layer."""
    blocks: list[Segment]
    """The blocks without what stands at the stack's end; empty where the state has several parts
    that only the end joins.
    """
    whole: list[Segment]
    """The blocks with the stack's end."""
    final_norm: bool
    """True where a norm that the blocks do not have stands at the end."""
    doubly_stochastic: bool
    """True where it mixes streams by a matrix whose rows and columns sum to 1."""
    has_norms: bool
    """True where it has any norm: on the stream, after it or within a branch."""
    one_norm: bool | None
    """True where branches side by side read one norm, False where each has its own; None where none
    stand side by side.
    """


def candidates(shape: StackShape, blocks: _Kinds) -> list[Candidate]:
    """Returns a candidate for every registered placement that is defined for such a stack.

    blocks: the kinds of each block's sub-layers, in order.
    """
    defined = [placement for placement in registered().values() if shape.model in placement.models]
    return [_candidate(placement, shape, blocks) for placement in defined]  # type: ignore[arg-type]


def candidate(
    placement: type[Placement], shape: StackShape, kinds: Sequence[SublayerKind]
) -> Candidate:
    """Returns one placement as it stands for such a stack, all of whose blocks have sub-layers of
    these kinds.

    Raises ValueError where it is not defined for it.
    """
    return _candidate(placement, shape, (tuple(kinds),) * shape.blocks)  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def _candidate(placement: type[Placement], shape: StackShape, blocks: _Kinds) -> Candidate:
    formula, end = placement(shape), _End()
    started = formula.start(Term("source", text="x"), end)
    state = _after(formula, started, blocks)
    whole = segments(formula.finish(state, end))
    # What stands at the end is made of the state, and has no branches.
    without = [] if isinstance(state, tuple) else [*whole[:-1], replace(whole[-1], end=state)]
    beside = [
        {id(branch.arguments[0]) for branch in some.branches}
        for some in without
        if some.side_by_side
    ]
    terms = [*ordered(whole[0].start), *(term for segment in whole for term in segment.terms)]
    return Candidate(
        placement=placement,
        started=formula.hidden(started),
        blocks=without,
        whole=whole,
        final_norm=not without or not matches(whole[-1], without[-1]),
        doubly_stochastic=any(term.factor and term.factor.doubly_stochastic for term in terms),
        has_norms=any(term.kind == "norm" or term.inside for term in terms),
        one_norm=all(len(read) == 1 for read in beside) if beside else None,
    )


@lru_cache(maxsize=128)
def lane_blocks(
    placement: type[Placement], shape: StackShape, blocks: _Kinds, lanes: int
) -> list[Segment]:
    """Returns each block of a placement with several streams, over a source for each; empty where
    it has not as many.
    """
    if len(placement.streams) != lanes:
        return []
    formula, streams = placement(shape), sources(lanes)
    started = formula.start(Term("source", text="x"), _End())
    if any(isinstance(part, tuple) for part in started):
        # A history is no stream: it grows.
        return []
    found = []
    for sublayers in _sublayers(formula, blocks):
        after = formula.block(streams, sublayers)
        if not isinstance(after, tuple) or len(after) != len(streams):
            return []
        found.append(as_segment(after))
    return found


def blocks_of(
    placement: type[Placement], shape: StackShape, kinds: Sequence[SublayerKind], blocks: int
) -> list[Segment]:
    """Returns the first blocks of a placement in such a stack, which may be deeper; empty where its
    state has several parts.

    Raises ValueError where it is not defined for such a stack.
    """
    formula = placement(shape)
    state = _after(
        formula, formula.start(Term("source", text="x"), _End()), (tuple(kinds),) * blocks
    )
    return [] if isinstance(state, tuple) else segments(state)


def _after(formula: Placement, state: State, blocks: _Kinds) -> State:
    """Returns the state after these blocks."""
    for sublayers in _sublayers(formula, blocks):
        state = formula.block(state, sublayers)
    return state


def _sublayers(formula: Placement, blocks: _Kinds) -> Iterator[list[_Sublayer]]:
    """Yields the sub-layers of each block, numbered through the stack."""
    number = count()
    for block, kinds in enumerate(blocks, 1):
        sites = [Site(kind=kind, block=block, stack=formula.stack) for kind in kinds]
        yield [_Sublayer(site=site, number=next(number)) for site in sites]
