"""Which registered placement an observed stream follows, sub-layer by sub-layer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from ..placement import Placement, StackShape, SublayerKind
from .branches import Branch, BranchKind
from .candidates import Candidate, candidate, candidates
from .findings import FoundSublayer
from .formulas import formula_text
from .matching import matches, scales
from .term import Segment, Term

DEEP, SHALLOW = 16, 2
"""Blocks of the two stacks over which a formula is asked whether it depends on depth."""


Choice = tuple[str, tuple[str, ...], Literal["sure", "unsure"]]
"""A placement's name, those with the same formula here, and the confidence."""


@dataclass(slots=True, kw_only=True)
class Fit:
    """How a candidate fits a stream."""

    candidate: Candidate
    matched: set[int] = field(default_factory=set)
    """Branches, by number."""
    exact: int = 0
    """How many of them agree in the norms of their queries and keys too."""
    parallel: set[int] = field(default_factory=set)
    ends_with_norm: bool = False
    """Whether a norm stands at the stack's end beyond the candidate's blocks."""
    details: int = 0
    """How many of norm, embedding norm and final norm are as the placement has them."""

    @property
    def rank(self) -> tuple[int, int, int]:
        return len(self.matched), self.exact, self.details


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A stream's formula in segments, with what else is known of it."""

    segments: list[Segment]
    branches: Mapping[int, Branch]
    """By their numbers in the formula."""
    norm: str
    embedding_norm: bool

    @property
    def last(self) -> Segment:
        return self.segments[-1]


def fits(observed: Observed, shape: StackShape, kinds: Sequence[BranchKind]) -> list[Fit]:
    """Every candidate that fits some sub-layer, the best first."""
    # No formula speaks of convolutions; they join a stream as a feed-forward would.
    spoken_of: list[SublayerKind] = ["feed_forward" if kind == "convolution" else kind for kind in kinds]
    found = [_fit(observed, each) for each in candidates(shape, spoken_of)]
    return sorted((fit for fit in found if fit.matched), key=lambda fit: fit.rank, reverse=True)


def _fit(observed: Observed, of: Candidate) -> Fit:
    fit = Fit(candidate=of)
    whole, blocks = _by_branches(of.whole), _by_branches(of.blocks)
    for segment in observed.segments[:-1]:
        _match(fit, segment, whole)
    # What follows the last sum may be the placement's end, a norm that is not the placement's, or nothing.
    for stripped, end in enumerate(endings(observed.last)):
        if _match(fit, end, blocks):
            fit.ends_with_norm = bool(stripped)
        elif _match(fit, end, whole):
            fit.ends_with_norm = True
    placement = of.placement
    expected_norm = {"layer-norm": ("layer-norm", "rms-norm", "")}.get(
        placement.default_norm, (placement.default_norm,)
    )
    fit.details = (
        (observed.norm in expected_norm)
        + (observed.embedding_norm == (of.started.kind == "norm"))
        + (fit.ends_with_norm == _has_final_norm(of))
    )
    return fit


def endings(last: Segment) -> list[Segment]:
    """A stack's last segment as it is, and without the norms at its end."""
    found = [last]
    while found[-1].end.kind == "norm" and found[-1].end.arguments[0] is not last.start:
        found.append(replace(last, end=found[-1].end.arguments[0]))
    return found


def _has_final_norm(candidate: Candidate) -> bool:
    return not candidate.blocks or not matches(candidate.whole[-1], candidate.blocks[-1])


def _by_branches(segments: list[Segment]) -> dict[tuple[int, ...], Segment]:
    return {tuple(branch.branch for branch in segment.branches): segment for segment in segments}


def _match(fit: Fit, observed: Segment, expected: dict[tuple[int, ...], Segment]) -> bool:
    """Note in `fit` the branches of a segment that are as expected, and tell whether there are any."""
    numbers = tuple(branch.branch for branch in observed.branches)
    pairs: list[tuple[tuple[int, ...], Term | None]] = [(numbers, None)]
    if len(numbers) > 1:
        pairs += [((branch.branch,), branch) for branch in observed.branches]
    done = False
    for some, only in pairs:
        if some not in expected or fit.matched >= set(some):
            continue
        for qk_norms in (True, False):
            if matches(observed, expected[some], only=only, qk_norms=qk_norms):
                fit.matched |= set(some)
                fit.exact += len(some) * qk_norms
                fit.parallel |= set(some) if only is not None else set()
                done = True
                break
    return done


def choose(found: Sequence[Fit], shape: StackShape, sublayers: int) -> Choice:
    """Of candidates in order of rank the placement, those that compute the same, and whether it is sure.

    sublayers: how many the stream has of the kinds that every Transformer has; 0 where one of these is missing.

    Of equals, one whose formula is the same at every depth comes before one that agrees at this depth alone, and a
    placement before those that are built on it and change its weights.
    """
    equal = [fit.candidate.placement for fit in found if fit.rank[:2] == found[0].rank[:2]]
    likely = best = [fit.candidate.placement for fit in found if fit.rank == found[0].rank]
    if len(best) > 1:
        likely = [p for p in best if not _varies(p, shape_with(shape, DEEP))] or best  # type: ignore[arg-type]
    likely = [p for p in likely if not any(p is not other and issubclass(p, other) for other in likely)]
    chosen = likely[0]
    # What sets it apart from what it is built on is more than norms: embeddings that nothing here looks at.
    refines = any(chosen is not other and issubclass(chosen, other) for other in equal)
    also = tuple(p.name for p in equal if p is not chosen)
    # A formula that differs from place to place is not known from a part of it.
    partly = len(found[0].matched) != sublayers and _varies(chosen, shape_with(shape, DEEP))  # type: ignore[arg-type]
    return chosen.name, also, "sure" if len(likely) == 1 and not refines and not partly else "unsure"


@cache
def _varies(placement: type[Placement], shape: StackShape) -> bool:
    """Whether the formula differs between kinds of sub-layers, between blocks, or between stacks of other depths."""
    deep, shallow = (candidate(placement, shape_with(shape, blocks), shape.kinds) for blocks in (DEEP, SHALLOW))
    return not deep.blocks or not all(matches(segment, shallow.blocks[0]) for segment in deep.blocks)


def shape_with(shape: StackShape, blocks: int) -> StackShape:
    return replace(
        shape,
        encoder_blocks=blocks if shape.encoder_blocks else 0,
        decoder_blocks=blocks if shape.decoder_blocks else 0,
    )


def sublayers(
    observed: Observed, shape: StackShape, kinds: Sequence[BranchKind], found: list[Fit], final_norm: bool
) -> tuple[FoundSublayer, ...]:
    """Every sub-layer with the placement that fits the whole stream best and fits it too.

    final_norm: whether the norm at the stack's end is none of the last sub-layer's.
    """
    chosen: dict[tuple[str, ...], Choice] = {}
    complete = sum(number >= 0 for number in observed.branches) if {"attention", "feed_forward"} <= set(kinds) else 0
    made = []
    for segment in observed.segments:
        text = _text(segment, final_norm and segment is observed.last)
        for term in segment.branches:
            own = [fit for fit in found if term.branch in fit.matched]
            key = tuple(fit.candidate.placement.name for fit in own)
            if key not in chosen:
                chosen[key] = choose(own, shape, complete) if own else ("", (), "sure")
            placement, also, confidence = chosen[key]
            branch = observed.branches[term.branch]
            skip, scale = scales(segment, term)
            made.append(
                FoundSublayer(
                    name=branch.name,
                    kind=branch.kind,
                    block=term.branch // len(kinds) + 1,
                    placement=placement,
                    also=also,
                    confidence=confidence,
                    formula=text,
                    skip_scale=skip,
                    branch_scale=scale,
                    parallel=bool(own) and term.branch in own[0].parallel,
                )
            )
    return tuple(sorted(made, key=lambda s: s.block))


def _text(segment: Segment, ends_with_norm: bool) -> str:
    """The segment's formula, without the final norm where that stands around it."""
    return formula_text(endings(segment)[1 if ends_with_norm and segment.end.kind == "norm" else 0])


def commonest(names: Sequence[str]) -> str:
    """The one that comes most often, the first of equals; "" of none."""
    return Counter(names).most_common(1)[0][0] if names else ""
