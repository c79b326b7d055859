"""Which of the placements that fit is named, and whether the name is sure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from ...placement import Placement, StackShape
from .candidates import Candidate, candidate
from .matching import Comparison

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
    ends_with_norm: bool = False
    """Whether a norm stands at the stack's end beyond the candidate's blocks."""
    details: int = 0
    """How many of norm, embedding norm and final norm are as the placement has them."""

    @property
    def rank(self) -> tuple[int, int, int]:
        return len(self.matched), self.exact, self.details


def choose(found: Sequence[Fit], shape: StackShape, sublayers: int, *, mixing_known: bool) -> Choice:
    """Of candidates in order of rank the placement, those that compute the same, and whether it is sure.

    sublayers: how many the stream has of the kinds that every Transformer has; 0 where one of these is missing.
    mixing_known: whether the sums of the weights that mix several streams are known.

    Of equals, one whose formula is the same at every depth comes before one that agrees at this depth alone, and a
    placement before those that are built on it and change its weights.
    """
    equal = [fit.candidate.placement for fit in found if fit.rank[:2] == found[0].rank[:2]]
    everywhere = [p for p in equal if not _varies(p, shape_with(shape, DEEP))]  # type: ignore[arg-type]
    among = [fit for fit in found if fit.candidate.placement in (everywhere or equal)]
    if not sublayers:
        # Of one kind of sub-layer alone, a formula that reaches across the kinds of a block says nothing of its own.
        among = [fit for fit in among if fit.candidate.placement.block is Placement.block] or among
    likely = [fit.candidate.placement for fit in among if fit.details == among[0].details]
    likely = [p for p in likely if not any(p is not other and issubclass(p, other) for other in likely)]
    chosen = likely[0]
    # What sets it apart from what it is built on is more than norms: embeddings that nothing here looks at.
    refines = any(chosen is not other and issubclass(chosen, other) for other in equal)
    also = tuple(p.name for p in equal if p is not chosen)
    # A formula that differs from place to place is not known from a part of it.
    partly = len(found[0].matched) != sublayers and _varies(chosen, shape_with(shape, DEEP))  # type: ignore[arg-type]
    # A mixing that is said to be doubly stochastic is one only where its sums were seen.
    unseen = not mixing_known and any(f.candidate.doubly_stochastic for f in among if f.candidate.placement is chosen)
    doubtful = len(likely) > 1 or refines or partly or unseen
    return chosen.name, also, "unsure" if doubtful else "sure"


@cache
def _varies(placement: type[Placement], shape: StackShape) -> bool:
    """Whether the formula differs between kinds of sub-layers, between blocks, or between stacks of other depths."""
    deep, shallow = (candidate(placement, shape_with(shape, n), shape.kinds) for n in (DEEP, SHALLOW))
    same = Comparison().matches
    return not deep.blocks or not all(same(segment, shallow.blocks[0]) for segment in deep.blocks)


def shape_with(shape: StackShape, blocks: int) -> StackShape:
    return replace(
        shape,
        encoder_blocks=blocks if shape.encoder_blocks else 0,
        decoder_blocks=blocks if shape.decoder_blocks else 0,
    )
