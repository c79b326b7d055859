"""The fit of registered placements to an observed stream, sub-layer by sub-layer, and the choice of
the one that is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from ...placement import Placement, StackShape
from ..find.branches import BranchKind
from ..find.segments import Segment, unscaled
from ..find.terms import Term
from ..record import Sublayer
from .candidates import SPOKEN_OF, Candidate, candidate, candidates, lane_blocks
from .lanes import connected
from .matching import matches, norms_left_out
from .observed import StreamFormula, observed_sublayer, without_end

DEEP, SHALLOW = 16, 2
"""Blocks of the two stacks over which a formula is asked whether it depends on depth."""

_Blocks = Sequence[Sequence[BranchKind]]
"""The kinds of each block's sub-layers, in order."""
_NamedPlacement = tuple[str, tuple[str, ...], Literal["sure", "unsure"]]
"""A placement's name, those with the same formula here, and the confidence."""


@dataclass(slots=True, kw_only=True)
class _Fit:
    """The fit of a candidate to a stream."""

    candidate: Candidate
    matched: set[int] = field(default_factory=set)
    """Branches, by number."""
    exact: int = 0
    """The number of matched sub-layers whose norms of queries and keys agree too."""
    ends_with_norm: bool = False
    """True where a norm stands at the stack's end beyond the candidate's blocks."""
    details: int = 0
    """The number of details, such as the kind of norm, the embedding norm and the final norm, that
    are as the placement has them.
    """

    @property
    def rank(self) -> tuple[int, int, int]:
        return len(self.matched), self.exact, self.details


def choose(
    found: Sequence[_Fit], shape: StackShape, sublayers: int, *, mixing_known: bool
) -> _NamedPlacement:
    """Chooses among candidates in order of rank: returns the placement, those that compute the
    same, and whether the name is sure.

    sublayers: how many the stream has of the kinds that every Transformer has; 0 where one of these
    is missing.
    mixing_known: whether the sums of the weights that mix several streams are known.

    Of equals, one whose formula is the same at every depth comes before one that agrees at this
    depth alone, and a placement before those that are built on it and change its weights.
    """
    equal = [fit.candidate.placement for fit in found if fit.rank[:2] == found[0].rank[:2]]
    everywhere = [p for p in equal if not _varies(p, shape_with(shape, DEEP))]  # type: ignore[arg-type]
    among = [fit for fit in found if fit.candidate.placement in (everywhere or equal)]
    if not sublayers:
        # Of one kind of sub-layer alone, a formula that reaches across the kinds of a block says
        # nothing of its own.
        among = [fit for fit in among if fit.candidate.placement.block is Placement.block] or among
    likely = [fit.candidate.placement for fit in among if fit.details == among[0].details]
    likely = [p for p in likely if not any(_refines(p, other) for other in likely)]
    chosen = likely[0]
    # A placement that refines another one may differ from it in embeddings, which are not compared
    # here.
    refines = any(_refines(chosen, other) for other in equal)
    also = tuple(p.name for p in equal if p is not chosen)
    # A formula that differs from place to place is not known from a part of it.
    partly = len(found[0].matched) != sublayers and _varies(chosen, shape_with(shape, DEEP))  # type: ignore[arg-type]
    # A mixing that is said to be doubly stochastic is one only where its sums were seen.
    unseen = not mixing_known and any(
        f.candidate.doubly_stochastic for f in among if f.candidate.placement is chosen
    )
    doubtful = len(likely) > 1 or refines or partly or unseen
    return chosen.name, also, "unsure" if doubtful else "sure"


def _refines(placement: type[Placement], other: type[Placement]) -> bool:
    """Tells whether a placement is built on another one, whose blocks it has."""
    return (
        placement is not other and issubclass(placement, other) and placement.block is other.block
    )


@cache
def _varies(placement: type[Placement], shape: StackShape) -> bool:
    """Tells whether a formula differs between kinds of sub-layers, between blocks, or between
    stacks of different depths.
    """
    deep, shallow = (
        candidate(placement, shape_with(shape, n), shape.kinds) for n in (DEEP, SHALLOW)
    )
    return not deep.blocks or not all(
        matches(segment, shallow.blocks[0]) for segment in deep.blocks
    )


def shape_with(shape: StackShape, blocks: int) -> StackShape:
    return replace(
        shape,
        encoder_blocks=blocks if shape.encoder_blocks else 0,
        decoder_blocks=blocks if shape.decoder_blocks else 0,
    )


def fits(observed: StreamFormula, shape: StackShape, blocks: _Blocks) -> list[_Fit]:
    """Returns every candidate that fits some sub-layer, the best first."""
    ends = observed.endings()
    found = []
    kinds_of = tuple(tuple(SPOKEN_OF[kind] for kind in kinds) for kinds in blocks)
    normed = any(
        term.kind == "norm" for segment in observed.segments[:-1] for term in segment.terms
    )
    normed_inside = any(branch.inside for branch in observed.branches.values())
    for each in candidates(shape, kinds_of):
        # Among sub-layers with norms a bare sum is no T-Fixup, which has none anywhere.
        if normed and not each.has_norms:
            continue
        # Of a stack without any norm, a placement with norms has a part by chance, as HybridNorm
        # has x + F(x).
        if each.has_norms and not observed.norm and not normed_inside:
            continue
        lanes: Sequence[Segment] = []
        if observed.lanes:
            lanes = lane_blocks(each.placement, shape, kinds_of, observed.stream.streams)  # type: ignore[arg-type]
        fit = _fit(observed, ends, each, lanes)
        if fit.matched:
            found.append(fit)
    return sorted(found, key=lambda fit: fit.rank, reverse=True)


def _fit(
    observed: StreamFormula, ends: Sequence[Segment], of: Candidate, lanes: Sequence[Segment]
) -> _Fit:
    """lanes: of several streams the candidate's blocks with a formula for each."""
    fit = _Fit(candidate=of)
    if observed.lanes:
        expected = _by_branches(lanes)
        for segment in observed.lanes:
            _match(fit, segment, expected)
        fit.ends_with_norm = any(ending.end.kind == "norm" for ending in ends[:-1])
    else:
        whole, blocks = _by_branches(of.whole), _by_branches(of.blocks)
        for segment in observed.segments[:-1]:
            _match(fit, segment, whole)
        # What follows the last sum may be the placement's end, a norm that is not the placement's,
        # or nothing.
        for stripped, end in enumerate(ends):
            if _match(fit, end, blocks):
                fit.ends_with_norm = bool(stripped)
            elif not observed.ends_as_before and _match(fit, end, whole):
                fit.ends_with_norm = True
    fit.details = _details(observed, of, ends_with_norm=fit.ends_with_norm)
    return fit


def _details(observed: StreamFormula, of: Candidate, *, ends_with_norm: bool) -> int:
    """Counts the details that are as the placement has them, of five: norm, shared norms, embedding
    norm, final norm and mixing.
    """
    placement = of.placement
    own = placement.default_norm
    expected_norm = ("layer-norm", "rms-norm", "") if own == "layer-norm" else (own,)
    return (
        (observed.norm in expected_norm)
        + (observed.embedding_norm == (of.started.kind == "norm"))
        + (ends_with_norm == of.final_norm)
        # Sums that are not known, or nearly 1, speak for such a mixing: others begin far from it,
        # or at no mixing.
        + ((observed.doubly_stochastic is not False) == of.doubly_stochastic)
        + (of.one_norm in observed.one_norm or (of.one_norm is None and not observed.one_norm))
    )


def _by_branches(segments: Sequence[Segment]) -> dict[tuple[int, ...], Segment]:
    return {tuple(branch.branch for branch in segment.branches): segment for segment in segments}


def _match(fit: _Fit, observed: Segment, expected: dict[tuple[int, ...], Segment]) -> bool:
    """Note in `fit` the branches of a segment that are as expected, and tell whether there are
    any.
    """
    numbers = tuple(branch.branch for branch in observed.branches)
    pairs: list[tuple[tuple[int, ...], Term | None]] = [(numbers, None)]
    if observed.side_by_side:
        pairs += [((branch.branch,), branch) for branch in observed.branches]
    done = False
    for some, only in pairs:
        if some not in expected or fit.matched >= set(some):
            continue
        # Where neither has norms of queries and keys, leaving them out would find the same again.
        left_out = norms_left_out(observed) or norms_left_out(expected[some])
        for qk_norms in (True, False) if left_out else (True,):
            if matches(observed, expected[some], qk_norms=qk_norms, only=only):
                fit.matched |= set(some)
                fit.exact += len(some) * qk_norms
                done = True
                break
    return done


def sublayers(
    observed: StreamFormula, shape: StackShape, blocks: _Blocks, found: list[_Fit], final_norm: bool
) -> tuple[Sublayer, ...]:
    """Returns every sub-layer with a placement: where it fits there, the one that fits the whole
    stream best.

    final_norm: whether the norm at the stack's end is none of the last sub-layer's.
    """
    every = found + _fits_but_for_scales(observed, shape, blocks, found)
    kinds = {kind for block in blocks for kind in block}
    complete = 0
    if {"attention", "feed_forward"} <= kinds:
        complete = sum(number >= 0 for number in observed.branches)
    block_of = [number for number, block in enumerate(blocks, 1) for _ in block]
    chosen: dict[tuple[str, ...], _NamedPlacement] = {(): ("", (), "unsure")}
    made = []
    for segment in observed.segments:
        shown = without_end(segment, final_norm=final_norm) if segment is observed.last else segment
        for term in segment.branches:
            own = [fit for fit in found if term.branch in fit.matched]
            likely = own or [fit for fit in every if term.branch in fit.matched]
            key = tuple(fit.candidate.placement.name for fit in likely)
            if key not in chosen:
                mixing_known = observed.doubly_stochastic is not None
                chosen[key] = choose(likely, shape, complete, mixing_known=mixing_known)
            name, also, confidence = chosen[key]
            sublayer = observed_sublayer(
                segment,
                term,
                observed.branches[term.branch],
                shown=shown,
                block=block_of[term.branch],
            )
            made.append(
                replace(
                    sublayer,
                    placement=name if own else "",
                    scaled_placement="" if own else name,
                    also=also if own else (),
                    # One sub-layer alone may be part of anything.
                    confidence="unsure" if len(observed.branches) == 1 else confidence,
                    parallel=segment.side_by_side,
                    connection=connected(segment, term),
                )
            )
    return tuple(sorted(made, key=lambda s: s.block))


def _fits_but_for_scales(
    observed: StreamFormula, shape: StackShape, blocks: _Blocks, found: Sequence[_Fit]
) -> list[_Fit]:
    """Returns the candidates that fit the stream when all factors of its branches are left out.

    Empty where every sub-layer already fits one of `found`. With a layer scale, x + 0.1 F(norm(x))
    fits Pre-LN here.
    """
    known = {number for fit in found for number in fit.matched}
    unnamed = any(
        term.branch not in known for segment in observed.segments for term in segment.branches
    )
    if not unnamed:
        return []
    bare = replace(observed, segments=[unscaled(segment) for segment in observed.segments])
    return fits(bare, shape, blocks)


def ends_with_norm(observed: StreamFormula, found: Sequence[_Fit]) -> bool:
    """Tells whether a norm that is no part of the last block follows the last sum."""
    last = {branch.branch for branch in observed.last.branches}
    # Of a formula that nobody registered: a norm at its end that no other segment has.
    if found and last & found[0].matched:
        return found[0].ends_with_norm
    return any(ending.end.kind == "norm" for ending in observed.endings()[:-1])
